#include "fullshard/train/resume.h"

#include <spdlog/spdlog.h>

#include "fullshard/checkpoint/any_checkpoint.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/foreign_checkpoint.h"
#include "fullshard/train/model_weights.h"

namespace fullshard {

Progress load_training_state(const std::string& path, const LanguageModel& model,
                             ShardedModel& sharded, Optimizer& optimizer) {
  const std::string own = find_own_checkpoint(path);
  if (!own.empty()) return load_checkpoint(own, sharded, optimizer).progress;
  const ForeignCheckpoint loaded =
      load_foreign_checkpoint(path, sharded, optimizer, load_options_of(model));
  if (sharded.mesh().world().rank() == 0) {
    for (const auto& note : loaded.notes) spdlog::warn("{} ({}): {}", path, loaded.kind, note);
  }
  return loaded.progress;
}

}  // namespace fullshard
