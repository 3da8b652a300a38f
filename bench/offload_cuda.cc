// SPDX-License-Identifier: Apache-2.0
// Optimizer states in host memory: what a step costs beside the same step with all states on the
// device, alone and under the forward and backward of a chain of square products.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/nn/unit.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/stepper.h"

namespace fullshard::bench {
namespace {

const at::Device kGpu(at::kCUDA, 0);

struct SquareImpl : Unit {
  explicit SquareImpl(int64_t width) : linear(register_module("linear", Linear(width, width))) {}
  at::Tensor forward(at::Tensor x) { return linear(x); }
  Linear linear;
};
FULLSHARD_UNIT(Square);

struct ChainImpl : Unit {
  ChainImpl(int64_t width, int num_units) {
    for (int i = 0; i < num_units; ++i) {
      squares.push_back(register_module("square" + std::to_string(i), Square(width)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& square : squares) x = square(x);
    return x.mean();
  }
  std::vector<Square> squares;
};
FULLSHARD_UNIT(Chain);

struct Settings {
  int64_t width = 8192;
  int num_units = 16;
  int64_t tokens = 8192;
  int steps = 10;
  int64_t window_bytes = 80 * kMiB;
  int num_windows = 4;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(const std::string& what, const Settings& settings, const tiers::TierOptions& offload,
         bool settles) {
  at::manual_seed(1);
  Chain model(settings.width, settings.num_units);
  auto sharded =
      shard(model, World::single(kGpu), {.param_dtype = at::kBFloat16, .offload = offload});
  AdamW optimizer(sharded, {.lr = 1e-5});
  Stepper stepper(sharded, optimizer, {.max_grad_norm = 1.0});
  const auto x = at::randn({settings.tokens, settings.width},
                           at::TensorOptions().device(kGpu).dtype(at::kBFloat16));
  std::vector<double> whole, updates;
  ShardCounters before;
  for (int step = 0; step < settings.steps + 2; ++step) {
    if (step == 2) {
      before = sharded.counters();
      memory::reset_device_peak(kGpu);
    }
    const auto start = std::chrono::steady_clock::now();
    stepper.backward(model(x));
    if (settles) at::zeros({1}, x.options()).item<float>();  // the backward is over
    const auto stepped = std::chrono::steady_clock::now();
    (void)stepper.step();
    if (settles) {
      sharded.settle();
      at::zeros({1}, x.options()).item<float>();
    }
    if (step < 2) continue;
    whole.push_back(seconds_since(start));
    updates.push_back(seconds_since(stepped));
  }
  std::sort(whole.begin(), whole.end());
  std::sort(updates.begin(), updates.end());
  const double seconds = (settles ? updates : whole)[whole.size() / 2];
  const auto& counters = sharded.counters();
  const auto copied =
      static_cast<double>(counters.states_copied_in - before.states_copied_in) / settings.steps;
  fmt::print(R"({{"what": "{}", "parameters": {}, "ms": {:.2f}, "ms_per_1e9": {:.2f}, )"
             R"("bytes_each_way": {:.0f}, "gb_per_s_each_way": {:.1f}, "peak_gib": {:.2f}}})"
             "\n",
             what, sharded.numel(), seconds * 1e3,
             seconds * 1e12 / static_cast<double>(sharded.numel()), copied, copied / seconds / 1e9,
             static_cast<double>(memory::device_memory(kGpu).peak_bytes) / (1024.0 * kMiB));
}

void run_all(const Settings& settings) {
  tiers::TierOptions offload{
      .optimizer = {.tier = tiers::Tier::host, .buffer_count = settings.num_windows},
      .window_bytes = settings.window_bytes};
  run("step alone, resident", settings, {}, true);
  run("step alone, states in host memory", settings, offload, true);
  run("forward, backward and step, resident", settings, {}, false);
  run("forward, backward and step, states in host memory", settings, offload, false);
  offload.ratio = 0.75;
  run("the same, a quarter resident", settings, offload, false);
}

}  // namespace
}  // namespace fullshard::bench

int main(int argc, char** argv) {
  fullshard::bench::Settings settings;
  CLI::App app("AdamW with states in host memory beside AdamW with all of them on the GPU");
  app.add_option("--width", settings.width)->capture_default_str();
  app.add_option("--units", settings.num_units)->capture_default_str();
  app.add_option("--tokens", settings.tokens)->capture_default_str();
  app.add_option("--steps", settings.steps)->capture_default_str();
  app.add_option("--window-bytes", settings.window_bytes)->capture_default_str();
  app.add_option("--windows", settings.num_windows)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (!at::hasCUDA()) {
    fmt::print(stderr, "bench_offload_cuda: there is no GPU\n");
    return 1;
  }
  fullshard::bench::run_all(settings);
}
