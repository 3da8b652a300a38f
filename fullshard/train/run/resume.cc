// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/resume.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "fullshard/base/printable.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/foreign_checkpoint.h"
#include "fullshard/checkpoint/round_masters.h"
#include "fullshard/stored/model_record.h"
#include "fullshard/train/model_weights.h"

namespace fullshard::train {

namespace {

// Empty: the loss scale goes on, or there was and is none.
std::string note_of_scale(const Progress& progress, const LossScaler& scaler) {
  if (progress.loss_scale && !scaler.is_dynamic()) {
    return fmt::format("its loss scale {} is left: that of this run is fixed at {}",
                       progress.loss_scale->scale, scaler.scale());
  }
  if (!progress.loss_scale && scaler.is_dynamic()) {
    return fmt::format("the loss scale starts anew at {}: it has none that changes",
                       scaler.scale());
  }
  return "";
}

Progress load_any(const stored::FoundCheckpoint& found, const LanguageModel& model,
                  ShardedModel& sharded, Optimizer& optimizer, const LossScaler& scaler) {
  const bool speaks = sharded.mesh().world().rank() == 0;
  if (found.is_own()) {
    const LoadedCheckpoint loaded = load_checkpoint(found.path(), sharded, optimizer);
    for (const auto& note : loaded.notes) {
      if (speaks) spdlog::warn("{}: {}", found.path(), note);
    }
    return loaded.progress;
  }
  ForeignCheckpoint loaded =
      load_foreign_checkpoint(found, sharded, optimizer, load_options_of(model));
  if (const auto note = note_of_scale(loaded.progress, scaler); !note.empty()) {
    loaded.notes.push_back(note);
  }
  if (speaks) {
    for (const auto& note : loaded.notes) {
      spdlog::warn("{} ({}): {}", found.path(), loaded.kind, note);
    }
  }
  return loaded.progress;
}

// "q_proj: 4, k_proj: 2"
template <class Value>
std::string pattern_text(const std::vector<std::pair<std::string, Value>>& patterns) {
  std::string text;
  for (const auto& [pattern, value] : patterns) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", base::printable(pattern), value);
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Progress load_training_state(const stored::FoundCheckpoint& found, const LanguageModel& model,
                             ShardedModel& sharded, Optimizer& optimizer, const LossScaler& scaler,
                             bool takes_fp32) {
  const Progress progress = load_any(found, model, sharded, optimizer, scaler);
  if (!takes_fp32) checkpoint::round_masters(sharded);
  return progress;
}

void check_same_adapter(const Progress& progress, const AdapterConfig& own,
                        const std::string& checkpoint) {
  const std::string text = stored::record_in(progress.extra, checkpoint).adapter;
  if (text.empty()) return;
  const LoraOptions saved = parse_adapter_config(text, checkpoint).lora;
  const auto check_equal = [&](const char* flag, const auto& now, const auto& then) {
    if (now == then) return;
    fail_as(ErrorKind::usage,
            "{}: is {}, but {} was trained with {}; give the same, or begin anew from its adapter "
            "with --adapter",
            flag, now, checkpoint, then);
  };
  check_equal("--lora-alpha", own.lora.alpha, saved.alpha);
  check_equal("--lora-dropout", own.lora.dropout, saved.dropout);
  check_equal("--lora-rslora", own.lora.use_rslora, saved.use_rslora);
  check_equal("alpha_pattern", pattern_text(own.lora.alpha_pattern),
              pattern_text(saved.alpha_pattern));
  check_equal("rank_pattern", pattern_text(own.lora.rank_pattern),
              pattern_text(saved.rank_pattern));
}

}  // namespace fullshard::train
