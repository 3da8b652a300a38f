// SPDX-License-Identifier: Apache-2.0
// The flags of LoRA: for adapters that are trained, and for those that a model is run with.
#include <CLI/CLI.hpp>

#include "fullshard/cli/flags/run_arguments.h"

#include "fullshard/cli/flags/value_checks.h"

namespace fullshard::cli {
namespace {

constexpr const char* kAdapters = "LoRA";

}  // namespace

void RunArguments::add_adapter() {
  const bool is_made = kind_ == RunKind::train || kind_ == RunKind::tune ||
                       kind_ == RunKind::estimate || kind_ == RunKind::step;
  options_.only_computes = kind_ == RunKind::eval || kind_ == RunKind::generate;
  command_
      ->add_option(
          "--adapter", options_.adapter,
          is_made ? "continue from this LoRA adapter, a folder of PEFT's or a name in the cache"
                  : "a LoRA adapter for the model: a folder of PEFT's or a name in the cache")
      ->group(kAdapters);
  if (kind_ == RunKind::compare) return;
  command_
      ->add_option("--base-precision", options_.base_precision,
                   "int8: frozen linear layers are kept in 8 bits, with a factor for each row; "
                   "default: as --precision")
      ->check(one_of({"int8"}))
      ->group(kAdapters);
  if (is_made) add_lora();
}

void RunArguments::add_lora() {
  LoraRunOptions& own = options_.lora;
  const auto add = [this](const char* names, auto& value, const char* help) {
    return command_->add_option(names, value, help)->group(kAdapters);
  };
  add("--lora-rank", own.rank, "train adapters of this rank, and freeze the model")
      ->check(within(1, 1 << 16));
  add("--lora-alpha", own.alpha, "scale the adapters by alpha / rank; default: 8")
      ->check(above_zero());
  add("--lora-dropout", own.dropout, "dropout of the adapters' input in training; default: 0")
      ->check(within(0.0, 0.999));
  add("--lora-targets,--lora-target", own.targets,
      "layers that get one: names or ends of paths, all-linear, or a regular expression for whole "
      "paths; default: those that PEFT takes for the model")
      ->expected(1, -1);
  add("--lora-modules-to-save", own.modules_to_save,
      "modules that are trained and saved as a whole, by name")
      ->expected(1, -1);
  command_
      ->add_flag("--lora-rslora", own.use_rslora,
                 "scale the adapters by alpha / sqrt(rank) instead")
      ->group(kAdapters);
}

}  // namespace fullshard::cli
