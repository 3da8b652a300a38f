// SPDX-License-Identifier: Apache-2.0
// The flags of examples, evaluations and references: what a run reads in addition to its model.
#include <CLI/CLI.hpp>

#include "fullshard/cli/flags/flag_groups.h"
#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/cli/flags/value_checks.h"

namespace fullshard::cli {

void RunArguments::add_data() {
  command_
      ->add_option(
          "--data", options_.data,
          "text, JSONL, conversations, pairs or token files, or folders; with PATH:WEIGHT of "
          "each they are mixed")
      ->required(kind_ != RunKind::tune && kind_ != RunKind::step)  // they generate data themselves
      ->group(groups::kModel);
  command_
      ->add_option(
          "--task", options_.task,
          "causal-lm, masked-lm, translation or classification; default: what the model is for")
      ->check(one_of({"causal-lm", "masked-lm", "translation", "classification"}))
      ->group(groups::kModel);
  add_examples();
  command_->add_option("--field", options_.text_field, "field of JSONL lines that holds the text")
      ->capture_default_str()
      ->group(groups::kModel);
  command_
      ->add_option("--loss-on", options_.loss_on,
                   "for rows with messages, or prompt and completion: completions (default) or all")
      ->check(one_of({"completions", "all"}))
      ->group(groups::kModel);
  command_
      ->add_flag("--packing", options_.packing,
                 "several documents side by side in a sequence, each of which sees only itself")
      ->group(groups::kModel);
  command_->add_option("--source-lang", options_.source_language, "key of a pair's source")
      ->group(groups::kModel);
  command_->add_option("--target-lang", options_.target_language, "key of a pair's target")
      ->group(groups::kModel);
  command_->add_option("--source-prefix", options_.source_prefix, "put before every source")
      ->group(groups::kModel);
  command_->add_option("--max-samples", options_.max_samples, "use at most this many examples")
      ->check(above_zero())
      ->group(groups::kModel);
  if (kind_ == RunKind::train || kind_ == RunKind::tune) {
    command_
        ->add_option("--max-eval-samples", options_.max_eval_samples,
                     "at most this many of --eval-data, 0: all; default: as --max-samples")
        ->check(at_least_zero())
        ->group(groups::kModel);
  }
  command_
      ->add_option("--mask-probability", options_.mask_probability, "masked-lm: share of tokens")
      ->check(within(0.0, 1.0))
      ->capture_default_str()
      ->group(groups::kModel);
}

void RunArguments::add_examples() {
  command_
      ->add_option("--sequence-length", options_.sequence_length,
                   "tokens of an example; default: the model's, at most 512")
      ->check(above_zero())
      ->group(groups::kModel);
  command_
      ->add_option("--target-length", options_.target_length,
                   "tokens of a translation; default: as --sequence-length")
      ->check(above_zero())
      ->group(groups::kModel);
}

void RunArguments::add_evaluation() {
  command_
      ->add_option("--eval-batches", options_.eval_batches,
                   "evaluate on this many micro-batches per rank; default: all")
      ->check(above_zero())
      ->group(groups::kTraining);
  command_->add_option("--eval-precision", options_.eval_precision, "no (fp32), bf16 or fp16")
      ->check(one_of({"no", "fp32", "bf16", "fp16"}))
      ->group(groups::kTraining);
}

void RunArguments::add_compare() {
  command_
      ->add_option("--reference", options_.reference,
                   "safetensors with inputs, logits, loss and grad.<name>")
      ->required()
      ->group(groups::kModel);
  command_->add_option("--tolerance", options_.tolerance, "largest relative difference")
      ->check(at_least_zero())
      ->capture_default_str()
      ->group(groups::kModel);
}

}  // namespace fullshard::cli
