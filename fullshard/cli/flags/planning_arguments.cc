// SPDX-License-Identifier: Apache-2.0
// The flags of `estimate`, `tune`, `simulate` and `bench kernels` other than those that they share
// with `train`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/cli/flags/flag_groups.h"
#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/cli/flags/value_checks.h"

namespace fullshard::cli {
namespace {

constexpr const char* kPlanning = "Planning";
constexpr const char* kTuning = "Tuning";
constexpr const char* kAuto = "With --auto";

}  // namespace

// Without ranks to start, flags for starting them would have no effect.
void RunArguments::drop_flags_of_ranks() {
  std::vector<std::string> dropped = {"--bind",
                                      "--log-dir",
                                      "--tee",
                                      "--notice",
                                      "--grace",
                                      "--max-restarts",
                                      "--node-rank",
                                      "--master-addr",
                                      "--master-port",
                                      "--hostfile",
                                      "--include",
                                      "--exclude",
                                      "--ssh",
                                      "--export",
                                      "--init-timeout",
                                      "--step-timeout",
                                      "--checkpoint-timeout",
                                      "--backend",
                                      "--seed",
                                      "--tokenizer",
                                      "--local-rank"};
  if (kind_ == RunKind::simulate) {  // --ranks and the cluster determine all of these
    dropped.insert(dropped.end(), {"--num-processes", "--nnodes", "--device"});
  }
  for (const std::string& flag : dropped) {
    command_->remove_option(command_->get_option(flag));
  }
}

void RunArguments::add_memory_limits() {
  const bool is_planned = kind_ == RunKind::estimate || kind_ == RunKind::tune;
  const auto size = [&](const char* name, std::string& text, const char* help) {
    command_->add_option(name, text, help)->group(is_planned ? kPlanning : kAuto);
  };
  size("--device-memory", planning_.device_memory,
       "memory of one device, as 80GB or 79GiB; default: on CPUs a rank's share of this machine's");
  size("--host-memory", planning_.host_memory, "memory of one host; default: this machine's");
}

void RunArguments::add_tuning() {
  const bool is_tune = kind_ == RunKind::tune;
  const char* const group = is_tune ? kTuning : kAuto;
  if (!is_tune) {
    command_
        ->add_flag("--auto", tuning_.is_auto,
                   "tune first, into DIR/tune, and train with what was the fastest that fits")
        ->group(group);
  }
  command_->add_option("--budget", tuning_.budget_minutes, "minutes that measuring may take")
      ->check(within(0.0, 1e6))
      ->capture_default_str()
      ->group(group);
  command_->add_option("--from", tuning_.from, "where to start: fast or frugal")
      ->check(one_of({"fast", "frugal"}))
      ->capture_default_str()
      ->group(group);
  command_
      ->add_option("--max-micro-batch", tuning_.max_micro_batch,
                   "the largest that is tried; default: 1024 on GPUs, 64 on CPUs")
      ->check(within(int64_t{1}, int64_t{1} << 20))
      ->group(group);
  command_->add_option("--measure-steps", tuning_.steps, "steps of each measurement")
      ->check(within(2, 1000))
      ->capture_default_str()
      ->group(group);
  command_
      ->add_option("--disk", tuning_.disk,
                   "folder for the rung that offloads to a disk; default: the output folder")
      ->group(group);
  if (!is_tune) {
    command_->final_callback([this] { note_flags_of_auto(); });
    return;
  }
  command_->add_option("--format", tuning_.format, "format of the file that is written")
      ->check(one_of({"deepspeed", "accelerate"}))
      ->capture_default_str()
      ->group(group);
}

void RunArguments::note_flags_of_auto() {
  if (tuning_.is_auto) return;
  for (const char* flag : {"device-memory", "host-memory", "disk", "budget", "measure-steps",
                           "max-micro-batch", "from"}) {
    if (was_given(flag)) options_.flags_of_auto.push_back(fmt::format("--{}", flag));
  }
}

void RunArguments::add_planning() {
  add_memory_limits();
  command_
      ->add_flag("--deepspeed-table", planning_.deepspeed_table,
                 "print what DeepSpeed's own estimators say instead")
      ->group(kPlanning);
  command_
      ->add_flag("--sharding-factors", planning_.sharding_factors,
                 "a row for each number of ranks that one copy may be sharded over: memory, bytes "
                 "sent, step time on GPUs")
      ->group(kPlanning);
  command_
      ->add_option("--cluster", planning_.factors_cluster,
                   "with --sharding-factors: a file or a preset, as simulate takes it; default: "
                   "h100")
      ->group(kPlanning);
  const auto number = [&](const char* name, auto& value, const char* help) {
    command_->add_option(name, value, help)->check(above_zero())->group(kPlanning);
  };
  number("--total-params", planning_.total_params, "parameters for the table, in place of a model");
  number("--largest-layer-params", planning_.largest_layer_params,
         "parameters of the largest layer, for the table");
  number("--gpus-per-node", planning_.gpus_per_node,
         "GPUs per node, for the table; default: --ranks, else one");
  number("--nodes", planning_.nodes, "nodes, for the table; default: one");
}

bool RunArguments::is_plan() const {
  return kind_ == RunKind::estimate || kind_ == RunKind::simulate || kind_ == RunKind::kernels;
}

void RunArguments::add_simulation() {
  constexpr const char* kCluster = "Cluster";
  command_->footer(
      "Nothing is started and no GPU is needed: the schedule is the engine's own, its kernels and "
      "collectives take the time that the cluster's figures give them.");
  command_
      ->add_option("--cluster", simulation_.cluster,
                   "a file, or a preset: h100, h200, a100-80, a100-40 (8 GPUs per host)")
      ->required()
      ->group(kCluster);
  command_->remove_option(command_->get_option("--ranks"));
  command_->add_option("-n,--ranks", simulation_.ranks, "GPUs, as 8 or 8,64,512")
      ->delimiter(',')
      ->check(within(1, 1 << 20))
      ->required()
      ->group(kCluster);
  const std::vector<std::pair<std::string, std::string>> overrides = {
      {"gpu.memory", "--gpu-memory"},
      {"gpu.memory_bandwidth", "--memory-bandwidth"},
      {"gpu.bf16_tflops", "--bf16-tflops"},
      {"gpu.attention_tflops", "--attention-tflops"},
      {"gpu.fp8_tflops", "--fp8-tflops"},
      {"gpu.spread", "--spread"},
      {"gpus_per_host", "--gpus-per-host"},
      {"inside", "--inside"},
      {"inside.latency", "--inside-latency"},
      {"between", "--between"},
      {"between.latency", "--between-latency"},
      {"bus", "--bus"},
      {"disk", "--disk"}};
  for (const auto& [key, flag] : overrides) simulation_.overrides.push_back({key, flag});
  for (auto& own : simulation_.overrides) {
    command_->add_option(own.flag, own.value, fmt::format("in place of the cluster's {}", own.key))
        ->group(kCluster);
  }
  command_
      ->add_option("--kernels", simulation_.kernels,
                   "times of kernels, as fullshard bench kernels writes them, or none: a roofline; "
                   "default: those of our own machine for h200, else none")
      ->group(kCluster);
  command_->add_option("--output", simulation_.output, "folder for simulation.html and .json")
      ->group(groups::kOutput);
  command_->add_option("--html", simulation_.html, "write the page with charts to this file")
      ->group(groups::kOutput);
  command_
      ->add_option("--trace", simulation_.trace,
                   "write a timeline of the last of --ranks for chrome://tracing or Perfetto")
      ->group(groups::kOutput);
}

void RunArguments::add_kernels() {
  command_->footer(
      "Times every product and attention of a model's step once per shape on this machine's GPU, "
      "and how long memory takes; simulate --kernels FILE reads it.");
  command_->add_option("--output", simulation_.output, "the file; default: standard output")
      ->group(groups::kOutput);
}

}  // namespace fullshard::cli
