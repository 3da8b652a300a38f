// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/run_arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/cuda_build.h"
#include "fullshard/cli/flags/flag_groups.h"
#include "fullshard/cli/flags/refuse_nan.h"
#include "fullshard/cli/flags/value_checks.h"
#include "fullshard/launch/devices.h"

namespace fullshard::cli {
namespace {

// Accepts 64-bit numbers only; CLI11 would clamp others or wrap them around.
CLI::Validator whole_number() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        uint64_t number = 0;
        const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
        const bool is_number = problem == std::errc() && end == text.data() + text.size();
        return is_number ? ""
                         : fmt::format("is {}, expected a whole number from 0 to 2^64 - 1", text);
      },
      "");
}

std::string_view name_of(RunKind kind) {
  switch (kind) {
    case RunKind::train:
      return "train";
    case RunKind::eval:
      return "eval";
    case RunKind::compare:
      return "compare";
    case RunKind::estimate:
      return "estimate";
    case RunKind::tune:
      return "tune";
    case RunKind::simulate:
      return "simulate";
    case RunKind::kernels:
      return "kernels";
    case RunKind::step:
      return "step";
    case RunKind::generate:
      break;
  }
  return "generate";
}

std::string_view help_of(RunKind kind) {
  if (kind == RunKind::train) return "pretrain or fine-tune a model";
  if (kind == RunKind::eval) return "loss and perplexity of a model on data";
  if (kind == RunKind::generate) return "text from a model: greedy, sampled or by beams";
  if (kind == RunKind::estimate) return "memory of a run before it runs";
  if (kind == RunKind::tune) return "the fastest configuration of a run that fits";
  if (kind == RunKind::simulate) return "step time and memory on a cluster that is not here";
  if (kind == RunKind::kernels) return "time the kernels of a model, for simulate";
  if (kind == RunKind::step) return "training steps of a model on made-up or own data";
  return "compare a model's logits, loss and gradients with a reference file";
}

}  // namespace

RunArguments::RunArguments(CLI::App& app, RunKind kind)
    : command_(app.add_subcommand(std::string(name_of(kind)), std::string(help_of(kind)))),
      kind_(kind),
      launch_(*command_),
      config_(*command_) {
  command_->footer(
      "--ranks N starts N ranks; otherwise the rank is found in the environment (fullshard launch, "
      "torchrun, srun, mpirun).\n"
      "Optimizer and schedule flags override the configuration; any other flag that contradicts it "
      "is an error.\n"
      "train, tune, eval and generate also take the flags of transformers' Trainer "
      "(--learning_rate, "
      "--per_device_train_batch_size, …): docs/train_command.md lists them.");
  add_model();
  add_sharding();
  if (kind != RunKind::simulate && kind != RunKind::kernels) add_adapter();
  if (kind == RunKind::compare) add_compare();
  if (kind == RunKind::generate) {
    add_generation();
    add_search();
  }
  const bool is_trained = kind == RunKind::train || kind == RunKind::tune;
  if (is_trained || kind == RunKind::eval) {
    add_data();
    add_evaluation();
  }
  if (kind == RunKind::step) {
    add_data();
    add_optimizer();
    add_step_bench();
  }
  if (is_plan()) {
    add_examples();
    add_optimizer();
  }
  if (kind == RunKind::estimate) add_planning();
  if (kind == RunKind::simulate) add_simulation();
  if (kind == RunKind::kernels) add_kernels();
  if (is_trained) {
    add_training();
    add_checkpoints();
    add_memory_limits();
    add_tuning();
  }
  if (kind == RunKind::train) add_monitors();
  add_output();
  if (is_plan()) drop_flags_of_ranks();
  refuse_nan(*command_);
}

void RunArguments::add_model() {
  command_
      ->add_option("--model", options_.model,
                   "a Hugging Face folder, or a preset: gpt2-124m, llama-15m, …")
      ->required(kind_ != RunKind::estimate)  // DeepSpeed's table needs no model
      ->group(groups::kModel);
  command_
      ->add_option("--tokenizer", options_.tokenizer,
                   "a folder or file, or bytes; default: the model's folder")
      ->group(groups::kModel);
  command_->add_option("--device", options_.device, "cpu or cuda; default: what is available")
      ->check(one_of({"cpu", "cuda"}))
      ->group(groups::kSharding);
  command_
      ->add_option("--backend", options_.backend, "communication backend: auto, shm, gloo or nccl")
      ->check(one_of({"auto", "shm", "gloo", "nccl"}))
      ->capture_default_str()
      ->group(groups::kSharding);
  add_timeouts();
  const bool draws_tokens = kind_ == RunKind::generate;
  command_
      ->add_option("--seed", options_.seed,
                   draws_tokens ? "seed of sampling" : "seed of weights, order and dropout")
      ->check(whole_number())
      ->capture_default_str();
  // deepspeed and old versions of torch's launcher add this flag; -1 means no rank.
  command_->add_option("--local-rank", local_rank_)->check(within(-1, 1 << 20))->group("");
}

// How long ranks wait for a rank that is alive but late; a lost rank ends every wait.
void RunArguments::add_timeouts() {
  const auto add = [&](const char* name, double& seconds, const char* what) {
    command_->add_option(name, seconds, what)
        ->check(within(1.0, 1e7))
        ->capture_default_str()
        ->group(groups::kSharding);
  };
  add("--init-timeout", options_.init_timeout, "seconds until all ranks have met");
  add("--step-timeout", options_.step_timeout, "seconds until a late rank is given up in a step");
  add("--checkpoint-timeout", options_.checkpoint_timeout,
      "the same in saves and loads; a rank that writes is not late");
}

void RunArguments::add_sharding() {
  if (kind_ != RunKind::generate) {
    add_setting("--micro-batch", "examples of a rank in one forward",
                fmt::format("{}", AutoInputs{}.per_device_train_batch_size));
  }
  add_setting("--strategy", "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, …, or 1 to 5",
              "FULL_SHARD");
  add_setting("--zero-stage", "0 to 3, in place of a strategy");
  add_setting("--sharding-factor",
              "ranks that one copy is sharded over, a divisor of all; default: the strategy's");
  add_setting("--wrap", "classes that are units, a least number of parameters, none or auto",
              "auto");
  add_setting("--precision", "no (fp32), bf16, fp16 or fp8", "no")->transform([](std::string word) {
    if (word == "fp32") word = "no";
    return word;
  });
  command_->add_option("--tf32", options_.tf32, "on or off, for matrix products on CUDA")
      ->check(one_of({"on", "off"}))
      ->group(groups::kSharding);
  command_
      ->add_flag("--deterministic", options_.is_deterministic,
                 "the same bits on every run, also on CUDA, where that may cost speed")
      ->group(groups::kSharding);
  if (kind_ == RunKind::generate || kind_ == RunKind::eval) {
    add_setting(
        "--offload",
        "param, followed by :cpu (default) or :FOLDER of a disk: weights are kept there and "
        "are fetched as they are used")
        ->expected(1)
        ->take_all();
  }
  const bool is_trained =
      kind_ == RunKind::train || kind_ == RunKind::tune || kind_ == RunKind::step;
  if (!is_trained && !is_plan()) return;
  add_switch("--recompute,--gradient-checkpointing", recompute_,
             "compute activations again in backward instead of keeping them")
      ->group(groups::kSharding);
  add_setting("--offload",
              "optimizer, param or all, followed by :cpu (default) or :FOLDER of a disk; may be "
              "repeated")
      ->expected(1)
      ->take_all();
  add_setting("--offload-ratio", "share of the optimizer states that leaves the device");
  add_setting("--offload-resident",
              "device memory for states that stay there anyway, as 20GB: those that forward "
              "needs first");
  add_setting(
      "--offload-step",
      "where states in host memory are updated: device, host, the host's share from 0 to 1, or as "
      "measured",
      "auto");
}

void RunArguments::add_output() {
  command_->add_flag("--json", options_.json, "machine-readable standard output")
      ->group(groups::kOutput);
  command_->add_flag("-q,--quiet", options_.quiet, "only warnings and errors")
      ->group(groups::kOutput);
  command_
      ->add_flag("-v,--verbose", options_.verbose,
                 "also every value in effect, and the units with their sizes")
      ->group(groups::kOutput);
}

CLI::Option* RunArguments::add_setting(const std::string& flag, const std::string& help,
                                       const std::string& fallback) {
  const bool shards = flag == "--strategy" || flag == "--zero-stage" || flag == "--wrap" ||
                      flag == "--sharding-factor" || flag == "--precision" ||
                      flag.starts_with("--offload");
  const std::string text = fallback.empty() ? help : fmt::format("{}; default: {}", help, fallback);
  auto* option =
      command_->add_option(flag, text)->group(shards ? groups::kSharding : groups::kTraining);
  option->type_name("");
  settings_.push_back({flag, option});
  return option;
}

CLI::Option* RunArguments::add_switch(const std::string& names, bool& is_on,
                                      const std::string& help) {
  CLI::Option* option = command_->add_flag(names, is_on, help);
  settings_.push_back({names.substr(0, names.find(',')), option});
  return option;
}

CLI::Option* RunArguments::add_interval(const std::string& flag, StepInterval& interval,
                                        const std::string& help) {
  const auto take = [flag, &interval](const std::string& text) {
    const auto parsed = StepInterval::parse(text);
    if (!parsed) {
      fail_as(ErrorKind::usage,
              "{}: is '{}', expected a number of steps, epoch, or a share of the run below 1", flag,
              text);
    }
    interval = *parsed;
  };
  return command_
      ->add_option_function<std::string>(flag, take,
                                         help + ", or epoch, or below 1 a share of the run")
      ->type_name("");
}

std::vector<std::string> RunArguments::words(
    const std::function<bool(std::string_view flag)>& leaves_out) const {
  std::vector<std::string> words;
  for (const CLI::Option* option : command_->get_options()) {
    const auto& names = option->get_lnames();
    if (option->count() == 0 || names.empty()) continue;
    if (std::any_of(names.begin(), names.end(), leaves_out)) continue;
    if (option->get_items_expected_max() == 0) {
      words.push_back("--" + names.front());
      continue;
    }
    for (const std::string& value : option->results()) {
      words.push_back(fmt::format("--{}={}", names.front(), value));
    }
  }
  return words;
}

bool is_chosen_by_tune(std::string_view flag) {
  constexpr std::array kChosen = {
      "config",      "config-file",     "deepspeed",    "fsdp",      "fsdp-config", "set",
      "micro-batch", "accumulate",      "strategy",     "precision", "zero-stage",  "recompute",
      "offload",     "sharding-factor", "offload-ratio"};
  return std::find(kChosen.begin(), kChosen.end(), flag) != kChosen.end();
}

std::optional<int> RunArguments::local_rank() const {
  return local_rank_ < 0 ? std::nullopt : std::optional(local_rank_);
}

bool RunArguments::was_chosen() const { return command_->parsed(); }
bool RunArguments::was_given(std::string_view flag) const {
  const CLI::Option* option = command_->get_option_no_throw("--" + std::string(flag));
  return option != nullptr && option->count() > 0;
}
std::string RunArguments::name() const { return std::string(name_of(kind_)); }

std::string RunArguments::device() const {
  // These commands always model a GPU.
  if (kind_ == RunKind::simulate || kind_ == RunKind::kernels) return "cuda";
  // A plan needs no GPU. --device-memory implies cuda.
  if (kind_ == RunKind::estimate) {
    if (!options_.device.empty()) return options_.device;
    if (!planning_.device_memory.empty()) return "cuda";
  }
  if (options_.device == "cuda" && !is_cuda_build()) {
    fail_as(ErrorKind::usage, "--device: is cuda, but this build has no CUDA; use --device cpu");
  }
  const bool has_gpus = is_cuda_build() && launch::num_visible_gpus() > 0;
  if (!options_.device.empty() || !has_gpus) return device_of_run(options_.device, {}, has_gpus);
  const LaunchPlan launch = config_.load(plan_options({}, {}), true).launch;
  return device_of_run("", launch.device.value, has_gpus);
}

PlanOptions RunArguments::plan_options(std::optional<int64_t> ranks,
                                       const AutoInputs& inputs) const {
  PlanOptions options{.ranks = ranks, .inputs = inputs};
  for (const auto& [flag, option] : settings_) {
    if (option->count() == 0) continue;
    if (option->get_items_expected_max() == 0) {
      options.flags.push_back({flag, "true"});
      continue;
    }
    for (const std::string& value : option->reduced_results()) {
      options.flags.push_back({flag, value});
    }
  }
  return options;
}

Plan RunArguments::plan(std::optional<int64_t> ranks, const AutoInputs& inputs,
                        bool is_quiet) const {
  PlanOptions options = plan_options(ranks, inputs);
  options.device = device();
  if (kind_ != RunKind::eval) return config_.load(std::move(options), is_quiet);
  // A file's batch sizes are for training; an evaluation may use others.
  const auto is_batch = [](const FlagValue& flag) { return flag.flag == "--micro-batch"; };
  const auto batch = std::stable_partition(options.flags.begin(), options.flags.end(),
                                           [&](const FlagValue& flag) { return !is_batch(flag); });
  const std::vector<FlagValue> own(batch, options.flags.end());
  options.flags.erase(batch, options.flags.end());
  Plan plan = config_.load(std::move(options), is_quiet);
  Problems problems;
  if (!own.empty()) plan.batch.micro.origin = {};
  apply_flags(plan, own, problems);
  problems.throw_if_any();
  return plan;
}

std::string device_of_run(const std::string& flag, const std::optional<std::string>& configured,
                          bool has_gpus) {
  if (!flag.empty()) return flag;
  return configured.value_or(has_gpus ? "cuda" : "cpu");
}

}  // namespace fullshard::cli
