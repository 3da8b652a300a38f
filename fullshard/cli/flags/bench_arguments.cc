// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/bench_arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/cli/flags/cuda_build.h"
#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/cli/flags/value_checks.h"
#include "fullshard/launch/devices.h"

namespace fullshard::cli {
namespace {

constexpr double kMostParameters = 1e12;
constexpr uint64_t kLargestMessage = uint64_t{1} << 40;

std::string bench_device(const std::string& asked) {
  if (asked == "cuda" && !is_cuda_build()) {
    fail_as(ErrorKind::usage, "--device: is cuda, but this build has no CUDA; use --device cpu");
  }
  const bool has_gpus = is_cuda_build() && launch::num_visible_gpus() > 0;
  if (asked == "cuda" && !has_gpus) {
    fail_as(ErrorKind::usage, "--device: is cuda, but no GPU is visible; use --device cpu");
  }
  return device_of_run(asked, {}, has_gpus);
}

void add_common(CLI::App& command, std::string& device, bool& quick, bool& json) {
  command.add_option("--device", device, "cpu or cuda; default: what is available")
      ->check(one_of({"cpu", "cuda"}));
  command.add_flag("--quick", quick, "measure less: rougher figures");
  command.add_flag("--json", json, "machine-readable standard output");
}

}  // namespace

void take_size(CLI::Option& option, uint64_t most) {
  const CLI::AsSizeValue read(false);
  const auto take = [read, most](std::string& text) -> std::string {
    const std::string given = text;
    uint64_t bytes = 0;
    if (!text.starts_with('-')) {  // CLI11 would wrap a negative number around
      if (const std::string problem = read(text); !problem.empty()) return problem;
      std::from_chars(text.data(), text.data() + text.size(), bytes);
    }
    return bytes >= 1 && bytes <= most ? ""
                                       : fmt::format("is {}, expected a size from 1 B to {}", given,
                                                     format_bytes(static_cast<int64_t>(most)));
  };
  option.transform(CLI::Validator(take, read.get_description()));
}

CommBenchArguments::CommBenchArguments(CLI::App& bench)
    : command_(bench.add_subcommand("comm", "collectives between ranks")), launch_(*command_) {
  command_->footer(
      "Two ranks, or one per visible GPU, unless --ranks says otherwise. Sizes are those of the "
      "whole "
      "tensor, and bus bandwidth is counted as NCCL's tests do: what "
      "the slowest link must have carried. Between ranks of one host that share memory the limit "
      "is a copy by all of them at once, which is measured too.");
  auto* size = command_->add_option(
      "--size", options_.sizes,
      "size of the whole tensor, may be repeated or joined by commas: 64KiB,16MiB; default: "
      "64KiB, 1MiB, 16MiB and 256MiB, with --quick 64KiB and 16MiB");
  take_size(*size->delimiter(','), kLargestMessage);
  command_->add_option("--dtype", options_.dtype, "dtype of what is sent: fp32, bf16 or fp16")
      ->check(one_of({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  command_
      ->add_option("--backend", options_.backend, "communication backend: auto, shm, gloo or nccl")
      ->check(one_of({"auto", "shm", "gloo", "nccl"}))
      ->capture_default_str();
  add_common(*command_, options_.device, options_.quick, options_.json);
}

bool CommBenchArguments::was_chosen() const { return command_->parsed(); }
std::string CommBenchArguments::device() const { return bench_device(options_.device); }

OptimizerBenchArguments::OptimizerBenchArguments(CLI::App& bench)
    : command_(bench.add_subcommand("optimizer", "steps of an optimizer on one device")) {
  command_->footer(
      "Each line also shows the time that a copy of as many bytes takes here, with as many "
      "threads: no update that reads its arrays from memory can be faster.");
  command_
      ->add_option("--optimizer", options_.optimizer,
                   "AdamW, Adam, Lamb, OneBitAdam, SGD, Adagrad or Lion")
      ->capture_default_str();
  command_
      ->add_option("--precision", options_.precision,
                   "no (fp32), or bf16 or fp16 with fp32 masters")
      ->check(one_of({"no", "bf16", "fp16"}))
      ->capture_default_str();
  command_
      ->add_option("--parameters", options_.parameters,
                   "how many, as 5e7; default: 5e7 on a CPU, 5e8 on a GPU, with --quick a tenth")
      ->check(within(1.0, kMostParameters));
  command_->add_option("--threads", options_.threads, "CPU threads; default: all cores")
      ->check(within(1, 4096));
  add_common(*command_, options_.device, options_.quick, options_.json);
}

bool OptimizerBenchArguments::was_chosen() const { return command_->parsed(); }
std::string OptimizerBenchArguments::device() const { return bench_device(options_.device); }

int64_t OptimizerBenchArguments::num_parameters() const {
  if (options_.parameters > 0) return static_cast<int64_t>(options_.parameters);
  const int64_t usual = device() == "cuda" ? 500'000'000 : 50'000'000;
  return options_.quick ? usual / 10 : usual;
}

}  // namespace fullshard::cli
