#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/running_save.h"

namespace fullshard {
namespace {

// A rank that has written waits no longer than this in one collective for one that has not.
constexpr auto kVoteEvery = std::chrono::seconds(1);

void save(const std::string& folder, const ShardedModel& model, const Optimizer* optimizer,
          const Progress& progress, const CheckpointOptions& options) {
  RunningSave save(folder, model, optimizer, progress, options, false);
  while (!save.poll(kVoteEvery)) {
  }
}

}  // namespace

void save_checkpoint(const std::string& folder, const ShardedModel& model,
                     const Optimizer& optimizer, const Progress& progress,
                     const CheckpointOptions& options) {
  save(folder, model, &optimizer, progress, options);
}

void save_checkpoint(const std::string& folder, const ShardedModel& model, const Progress& progress,
                     const CheckpointOptions& options) {
  save(folder, model, nullptr, progress, options);
}

}  // namespace fullshard
