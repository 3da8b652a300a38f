// SPDX-License-Identifier: Apache-2.0
// The flags of `train`, `tune` and `bench step`: duration, the parts of a step, what is kept.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "fullshard/cli/flags/flag_groups.h"
#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/cli/flags/value_checks.h"

namespace fullshard::cli {

void RunArguments::add_training() {
  command_
      ->add_option(
          "--trace", options_.trace,
          "write rank 0's last steps as a timeline for Perfetto or chrome://tracing; waits "
          "for the device after every phase")
      ->group(groups::kOutput);
  add_graphs();
  command_
      ->add_flag_callback(
          "--no-plan", [this] { options_.plans_memory = false; },
          "start without a memory plan; no run is refused because it would not fit")
      ->group(groups::kTraining);
  command_
      ->add_flag("--from-scratch", options_.from_scratch, "new weights even if the folder has some")
      ->group(groups::kModel);
  command_
      ->add_flag("--pretrained", options_.pretrained,
                 "the name of a model with weights, in the Hugging Face cache, even if a preset "
                 "has that name")
      ->group(groups::kModel);
  command_
      ->add_flag("--new-head", options_.new_head,
                 "initialise a new head and keep the rest; a head that the folder lacks is new "
                 "anyway, with a warning")
      ->group(groups::kModel);
  command_->add_option("--eval-data", options_.eval_data, "evaluate on this")
      ->group(groups::kModel);
  command_
      ->add_option("--validation-split", options_.validation_split,
                   "hold out this share of the data, drawn by the seed, and evaluate on it")
      ->check(within(1e-9, 0.99))
      ->group(groups::kModel);
  command_->add_option("--order", options_.order, "shuffled or sequential")
      ->check(one_of({"shuffled", "sequential"}))
      ->capture_default_str()
      ->group(groups::kModel);
  add_switch("--drop-last", options_.drop_last,
             "leave out the examples of an epoch that do not fill a step")
      ->group(groups::kModel);
  command_->add_option("--steps", options_.steps, "optimizer steps; default: one epoch")
      ->check(above_zero())
      ->group(groups::kTraining);
  command_->add_option("--epochs", options_.epochs, "passes over the data; may be a fraction")
      ->check(above_zero())
      ->group(groups::kTraining);
  add_optimizer();
  add_interval("--eval-every", options_.eval_every, "steps between evaluations")
      ->group(groups::kTraining);
  command_
      ->add_option("--eval-micro-batch", options_.eval_micro_batch,
                   "examples of a rank in one forward of an evaluation; default: as --micro-batch")
      ->check(above_zero())
      ->group(groups::kTraining);
  command_
      ->add_option("--early-stopping-patience", options_.early_stopping_patience,
                   "stop after this many evaluations without a lower loss; needs --eval-every")
      ->check(above_zero())
      ->group(groups::kTraining);
  command_
      ->add_option("--early-stopping-threshold", options_.early_stopping_threshold,
                   "a loss counts as lower when it is lower by more than this")
      ->check(at_least_zero())
      ->capture_default_str()
      ->group(groups::kTraining);
  command_->add_option("--log-every", options_.log_every, "steps between lines of metrics.jsonl")
      ->check(above_zero())
      ->capture_default_str()
      ->group(groups::kOutput);
  command_
      ->add_flag("--keep-best", options_.keep_best,
                 "keep the model of the lowest evaluation loss in DIR/best")
      ->group(groups::kOutput);
  command_
      ->add_flag("--restore-best", options_.restore_best,
                 "load that model at the end, so that DIR/model holds it; also keeps it")
      ->group(groups::kOutput);
  command_
      ->add_flag_callback(
          "--no-save-model", [this] { options_.save_model = false; }, "do not write DIR/model")
      ->group(groups::kOutput);
  const bool is_tune = kind_ == RunKind::tune;
  if (is_tune) options_.output = "fullshard-tune";
  command_
      ->add_option("-o,--output", options_.output,
                   is_tune ? "folder for the results" : "folder of the run")
      ->capture_default_str()
      ->group(groups::kOutput);
  command_
      ->add_flag("--overwrite", options_.overwrite,
                 "replace the run that is there, with its checkpoints")
      ->group(groups::kOutput);
}

void RunArguments::add_graphs() {
  command_
      ->add_flag_callback(
          "--no-graphs", [this] { options_.graphs = false; },
          "issue every kernel from the host; otherwise small steps on one GPU become a CUDA graph, "
          "with the same results")
      ->group(groups::kTraining);
}

void RunArguments::add_step_bench() {
  command_->footer(
      "Trains as train does, with the same flags and configuration files, on random tokens where "
      "--data names none, and keeps nothing: what a step takes, compared with what this machine's "
      "products, measured at the start, could do.");
  add_graphs();
  command_->add_option("--steps", step_bench_.steps, "steps that are timed, after two that are not")
      ->check(within(1, 100'000))
      ->capture_default_str()
      ->group(groups::kTraining);
  command_
      ->add_flag("--phases", step_bench_.phases,
                 "also forward, backward and update; waits for the device after each of them")
      ->group(groups::kOutput);
}

// The parts of a step.
void RunArguments::add_optimizer() {
  const Plan fresh;  // defaults where neither a file nor a flag sets a value
  const auto text = [](double value) { return fmt::format("{}", value); };
  add_setting("--accumulate", "micro-batches per optimizer step", "1");
  add_setting("--optimizer", "AdamW, Adam, Lamb, OneBitAdam, SGD, Adagrad or Lion",
              fresh.optimizer.type.value);
  add_setting("--lr", "learning rate", text(fresh.optimizer.lr.value));
  add_setting("--adam-beta1", "decay of the mean of gradients",
              text(fresh.optimizer.betas.value[0]));
  add_setting("--adam-beta2", "decay of the mean of their squares",
              text(fresh.optimizer.betas.value[1]));
  add_setting("--adam-epsilon", "added to the denominator", text(fresh.optimizer.eps.value));
  add_setting("--weight-decay", "pull of all parameters towards zero",
              text(fresh.optimizer.weight_decay.value));
  add_setting(
      "--schedule",
      "WarmupLR, WarmupDecayLR, …, or the Trainer's: constant, linear, cosine, polynomial, …",
      fresh.scheduler.type.value);
  add_setting("--schedule-args",
              "arguments of the Trainer's schedules: power=2,lr_end=1e-6, or as JSON");
  add_setting("--warmup", "steps until the full learning rate, or below 1 their share of the run",
              fmt::format("{}", fresh.scheduler.warmup_num_steps.value));
  add_setting("--clip", "largest global norm of the gradients; 0: none",
              text(fresh.clipping.value));
  command_
      ->add_option("--label-smoothing", options_.label_smoothing,
                   "share of the probability spread over all tokens")
      ->check(within(0.0, 1.0))
      ->capture_default_str()
      ->group(groups::kTraining);
  command_
      ->add_flag("--reduce-once", options_.reduce_once,
                 "with --accumulate: add the micro-batches of a step on each rank and reduce their "
                 "sum once; less traffic, whole gradients in memory")
      ->group(groups::kTraining);
}

void RunArguments::add_monitors() {
  add_setting("--report-to",
              "where else the values of metrics.jsonl go: none, tensorboard (events in "
              "DIR/tensorboard), csv (DIR/csv) or all",
              "none")
      ->group(groups::kOutput);
}

void RunArguments::add_checkpoints() {
  add_interval("--save-every", options_.save_every, "steps between resumable checkpoints")
      ->group(groups::kOutput);
  add_switch("--node-local", options_.node_local, "each host writes checkpoints to its own disk")
      ->group(groups::kOutput);
  command_->add_option("--keep", options_.keep, "keep this many checkpoints; default: all")
      ->check(above_zero())
      ->group(groups::kOutput);
  command_->add_flag("--async-save", options_.async_save, "write them while training continues")
      ->group(groups::kOutput);
  command_
      ->add_option(
          "--resume", options_.resume,
          "continue from a checkpoint: auto (the newest whole one of DIR), none, or a folder")
      ->capture_default_str()
      ->group(groups::kOutput);
}

}  // namespace fullshard::cli
