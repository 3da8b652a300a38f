// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/idle_flags.h"

#include <fmt/format.h>

#include <utility>

namespace fullshard::worker {
namespace {

using GivenFlags = std::vector<std::pair<const char*, bool>>;

void add_idle(std::vector<std::string>& idle, const GivenFlags& flags, const std::string& why) {
  for (const auto& [flag, is_given] : flags) {
    if (is_given) idle.push_back(fmt::format("{}: has no effect {}", flag, why));
  }
}

}  // namespace

std::vector<std::string> idle_flags(const RunOptions& options, const LanguageModel& model) {
  std::vector<std::string> idle;
  if (options.eval_data.empty() && options.validation_split == 0) {
    add_idle(idle,
             {{"--eval-every", options.eval_every.is_set()},
              {"--eval-batches", options.eval_batches > 0},
              {"--eval-micro-batch", options.eval_micro_batch > 0},
              {"--eval-precision", !options.eval_precision.empty()},
              {"--max-eval-samples", options.max_eval_samples.has_value()},
              {"--keep-best", options.keep_best},
              {"--restore-best", options.restore_best}},
             "without --eval-data or --validation-split");
  }
  if (!options.save_every.is_set()) {
    add_idle(idle,
             {{"--keep", options.keep > 0},
              {"--async-save", options.async_save},
              {"--node-local", options.node_local}},
             "without --save-every");
  }
  for (const std::string& flag : options.flags_of_auto) {
    add_idle(idle, {{flag.c_str(), true}}, "without --auto");
  }
  if (options.steps > 0) add_idle(idle, {{"--epochs", options.epochs > 0}}, "with --steps");
  if (!model.is_masked()) {
    add_idle(idle,
             {{"--mask-probability", options.mask_probability != RunOptions{}.mask_probability}},
             "for a model that predicts no masked tokens");
  }
  if (!model.is_encoder_decoder()) {
    add_idle(idle,
             {{"--target-length", options.target_length > 0},
              {"--source-lang", !options.source_language.empty()},
              {"--target-lang", !options.target_language.empty()},
              {"--source-prefix", !options.source_prefix.empty()}},
             "for a model without a decoder of its own");
  }
  return idle;
}

}  // namespace fullshard::worker
