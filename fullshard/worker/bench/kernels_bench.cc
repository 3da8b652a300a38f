// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/bench/kernels_bench.h"

#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/cli/flags/cuda_build.h"
#include "fullshard/launch/devices.h"
#include "fullshard/memory/device_name.h"
#include "fullshard/memory/recorded_event.h"
#include "fullshard/ops/attention/fused_attention.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/worker/simulate_run.h"

namespace fullshard::worker {
namespace {

constexpr int kTimedRuns = 5, kWarmUps = 2, kMostRuns = 2000;
constexpr double kSustainedSeconds = 0.1;
constexpr int kUsualRanks = 8;
constexpr int64_t kSmallestMemory = 64 * kKiB, kLargestMemory = kGiB;

at::Device timing_device(const RunOptions& options) {
  if (options.device == "cpu") return at::kCPU;
  if (!cli::is_cuda_build() || launch::num_visible_gpus() == 0) {
    fail_as(ErrorKind::usage,
            "bench kernels: {}; run it on a machine with a GPU, or add --device cpu",
            cli::is_cuda_build() ? "no GPU is visible" : "this build has no CUDA");
  }
  return {at::kCUDA, 0};
}

double run_on_host(const std::function<void()>& kernel) {
  const auto begin = std::chrono::steady_clock::now();
  kernel();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double run_on_device(const std::function<void()>& kernel, at::Device device) {
  constexpr auto kTimed = memory::RecordedEvent::Timing::on;
  const auto begin = memory::RecordedEvent::of_caller(device, kTimed);
  kernel();
  const auto end = memory::RecordedEvent::of_caller(device, kTimed);
  end.wait();
  return begin.seconds_until(end);
}

double median_on_host(const std::function<void()>& kernel) {
  std::vector<double> times;
  for (int i = 0; i < kTimedRuns; ++i) times.push_back(run_on_host(kernel));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// As a step runs it: back to back, until the clocks have fallen to what the power limit allows.
double sustained_on_device(const std::function<void()>& kernel, at::Device device) {
  const double once = run_on_device(kernel, device);
  const int repeats = std::clamp(static_cast<int>(kSustainedSeconds / once), kTimedRuns, kMostRuns);
  const auto repeated = [&] {
    for (int i = 0; i < repeats; ++i) kernel();
  };
  run_on_device(repeated, device);
  return run_on_device(repeated, device) / repeats;
}

double timed(const std::function<void()>& kernel, at::Device device) {
  for (int i = 0; i < kWarmUps; ++i) kernel();
  return device.is_cpu() ? median_on_host(kernel) : sustained_on_device(kernel, device);
}

double timed_product(const tensor::OperatorCall& call, at::Device device) {
  const auto options = at::TensorOptions().dtype(call.dtype).device(device);
  const int64_t batch = call.dims[0], m = call.dims[1], n = call.dims[2], k = call.dims[3];
  const auto left = at::randn({batch, m, k}, options), right = at::randn({batch, k, n}, options);
  if (batch > 1) return timed([&] { left.bmm(right); }, device);
  return timed([&] { left[0].mm(right[0]); }, device);
}

constexpr double kUsualDropout = 0.1;

bool has_mark(const tensor::OperatorCall& call, std::string_view mark) {
  return call.name.find(mark) != std::string::npos;
}

// Attention with a bias that is added to the scores and has a gradient.
double timed_biased_attention(const tensor::OperatorCall& call, at::Device device) {
  const auto options = at::TensorOptions().dtype(call.dtype).device(device);
  const int64_t batch = call.dims[0], heads = call.dims[1], queries = call.dims[2];
  const int64_t keys = call.dims[3], width = call.dims[4];
  const bool is_causal = has_mark(call, tensor::kCausal);
  const double dropout = has_mark(call, tensor::kDropped) ? kUsualDropout : 0;
  const auto query = at::randn({batch, heads, queries, width}, options);
  const auto key = at::randn({batch, heads, keys, width}, options);
  const auto bias =
      at::randn({1, heads, queries, keys}, options).expand({batch, heads, queries, keys});
  const auto attend = [&] {
    return at::_scaled_dot_product_efficient_attention(query, key, key, bias, true, dropout,
                                                       is_causal);
  };
  if (!call.name.ends_with("_backward")) return timed(attend, device);
  const auto [output, sums, seed, offset] = attend();
  const auto gradient = at::randn_like(output);
  return timed(
      [&, &out = output, &logs = sums, &from = seed, &begin = offset] {
        at::_scaled_dot_product_efficient_attention_backward(gradient, query, key, key, bias, out,
                                                             logs, from, begin, dropout,
                                                             {true, true, true, true}, is_causal);
      },
      device);
}

// The kernels that attention() takes.
double timed_dropped_attention(const tensor::OperatorCall& call, at::Device device) {
  const auto options = at::TensorOptions().dtype(call.dtype).device(device);
  const int64_t batch = call.dims[0], heads = call.dims[1], width = call.dims[4];
  const int64_t queries = call.dims[2], keys = call.dims[3];
  const bool is_causal = has_mark(call, tensor::kCausal);
  const auto rows = at::randn({batch, queries, heads, width}, options);
  const auto query = rows.transpose(1, 2);
  const auto key = at::randn({batch, keys, heads, width}, options).transpose(1, 2);
  const auto gradient = at::randn_like(query);
  const bool is_backward = call.name.ends_with("_backward");
  if (ops::prefers_cudnn(rows)) {
    const auto attend = [&] {
      return at::_scaled_dot_product_cudnn_attention(query, key, key, std::nullopt, true,
                                                     kUsualDropout, is_causal);
    };
    if (!is_backward) return timed(attend, device);
    const auto made = attend();
    return timed(
        [&] {
          at::_scaled_dot_product_cudnn_attention_backward(
              gradient, query, key, key, std::get<0>(made), std::get<1>(made), std::get<6>(made),
              std::get<7>(made), {}, {}, {}, queries, keys, kUsualDropout, is_causal);
        },
        device);
  }
  const auto attend = [&] {
    return at::_scaled_dot_product_flash_attention(query, key, key, kUsualDropout, is_causal);
  };
  if (!is_backward) return timed(attend, device);
  const auto made = attend();
  return timed(
      [&] {
        at::_scaled_dot_product_flash_attention_backward(
            gradient, query, key, key, std::get<0>(made), std::get<1>(made), std::get<2>(made),
            std::get<3>(made), queries, keys, kUsualDropout, is_causal, std::get<6>(made),
            std::get<7>(made));
      },
      device);
}

double timed_attention(const tensor::OperatorCall& call, at::Device device) {
  if (has_mark(call, tensor::kBiased)) return timed_biased_attention(call, device);
  if (has_mark(call, tensor::kDropped)) return timed_dropped_attention(call, device);
  const auto options = at::TensorOptions().dtype(call.dtype).device(device);
  const int64_t batch = call.dims[0], heads = call.dims[1], width = call.dims[4];
  const auto query = at::randn({batch, call.dims[2], heads, width}, options);
  const auto key = at::randn({batch, call.dims[3], heads, width}, options);
  const ops::FusedAttentionInputs inputs{.query = query,
                                         .key = key,
                                         .value = key,
                                         .causal = has_mark(call, tensor::kCausal),
                                         .scale = 1 / std::sqrt(static_cast<double>(width))};
  if (!call.name.ends_with("_backward")) {
    return timed([&] { ops::fused_attention(inputs, true); }, device);
  }
  const auto made = ops::fused_attention(inputs, true);
  const auto gradient = at::randn_like(made.output);
  return timed([&] { ops::fused_attention_backward(inputs, made, gradient); }, device);
}

// Half of the bytes are read, half written.
simulation::TimedKernel timed_memory(int64_t bytes, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(device);
  const auto from = at::empty({bytes / 2}, options).fill_(1);
  const auto to = at::empty({bytes / 2}, options).fill_(2);
  return {.name = "memory", .bytes = bytes, .seconds = timed([&] { to.copy_(from); }, device)};
}

// Each shape of products and attention once, in the order of the step. CPUs have no such attention.
std::vector<tensor::OperatorCall> distinct_calls(const simulation::RecordedSchedule& schedule,
                                                 bool with_attention) {
  using Kind = tensor::OperatorKind;
  std::vector<tensor::OperatorCall> calls;
  for (const auto& task : schedule.tasks) {
    const bool is_wanted =
        task.op.kind == Kind::product || (with_attention && task.op.kind == Kind::attention);
    if (task.kind != simulation::TaskKind::kernel || !is_wanted) continue;
    const bool is_known = std::any_of(calls.begin(), calls.end(), [&](const auto& call) {
      return call.name == task.op.name && call.dims == task.op.dims && call.dtype == task.op.dtype;
    });
    if (!is_known) calls.push_back(task.op);
  }
  return calls;
}

simulation::KernelTable time_kernels(const simulation::RecordedSchedule& schedule,
                                     at::Device device) {
  std::vector<simulation::TimedKernel> kernels;
  for (const auto& call : distinct_calls(schedule, !device.is_cpu())) {
    const bool is_product = call.kind == tensor::OperatorKind::product;
    kernels.push_back(
        {.name = call.name,
         .dims = call.dims,
         .dtype = c10::toString(call.dtype),
         .seconds = is_product ? timed_product(call, device) : timed_attention(call, device)});
  }
  for (int64_t bytes = kSmallestMemory; bytes <= kLargestMemory; bytes *= 4) {
    kernels.push_back(timed_memory(bytes, device));
  }
  return {memory::device_name(device), kernels};
}

}  // namespace

int run_bench_kernels(cli::RunArguments& arguments) {
  const at::Device device = timing_device(arguments.options());
  auto& launch = arguments.launch();
  launch.take(arguments.plan(std::nullopt, {}, true).launch);
  launch.set_default_ranks(kUsualRanks);
  auto run = simulated_model(arguments, find_simulated_model(arguments.options().model),
                             launch.world_size());
  run.options.cluster = Cluster::load("h200");  // only shapes are wanted
  const auto recorded =
      simulation::record_run(run.model, run.plan, run.options, tensor::RealGpus::used);
  const std::string text = time_kernels(recorded.schedule, device).json();
  const std::string& output = arguments.simulation().output;
  if (!output.empty()) {
    report::write_whole_file(output, text);
  } else {
    fmt::print("{}", text);
  }
  base::flush_standard_output();
  return 0;
}

}  // namespace fullshard::worker
