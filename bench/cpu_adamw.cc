// SPDX-License-Identifier: Apache-2.0
// The CPU step of AdamW beside the bandwidth of a copy with as many threads, and beside loops that
// only touch the same bytes: how long any update must take that reads its arrays from memory.
//
//   bench_cpu_adamw --threads 1   prints one JSON line for each measurement
//
// Arrays lie in the memory that the engine would give them (Communicator::allocate).
// Repetitions go round all lines, so that a slow second of the machine hits every line alike.
// bench/cpu_adamw.sh runs it with one and two threads, and the peers in between.
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/engine/gradients/grad_norm_kernels.h"
#include "fullshard/optim/kernels/adamw_kernels.h"

namespace fullshard::bench {
namespace {

constexpr double kBytesPerParameter = 28;  // 16 read, 12 written
constexpr int64_t kCopyBytes = int64_t{1} << 28;

struct Arrays {
  Arrays(const Communicator& ranks, int64_t numel)
      : master(ranks.allocate(numel, at::kFloat).fill_(0.5f)),
        gradient(ranks.allocate(numel, at::kFloat).fill_(1e-3f)),
        moment(ranks.allocate(numel, at::kFloat).fill_(1e-3f)),
        variance(ranks.allocate(numel, at::kFloat).fill_(1e-6f)),
        shown(ranks.allocate(numel, at::kBFloat16).zero_()) {}

  optim::PieceElements elements(bool is_shown) const {
    optim::PieceElements piece;
    piece.master = {master.data_ptr(), at::kFloat};
    piece.gradient = {gradient.data_ptr(), at::kFloat};
    if (is_shown) piece.shown = {shown.data_ptr(), at::kBFloat16};
    piece.states = {optim::Elements{moment.data_ptr(), at::kFloat},
                    optim::Elements{variance.data_ptr(), at::kFloat}};
    piece.numel = master.numel();
    return piece;
  }

  at::Tensor master, gradient, moment, variance, shown;
};

struct Line {
  std::string what;
  std::function<void()> run;
  double bytes = kBytesPerParameter;
  std::vector<double> seconds = {};
};

#pragma GCC push_options
#pragma GCC optimize("O3")
FULLSHARD_VECTORISED uint32_t read_four(const uint32_t* a, const uint32_t* b, const uint32_t* c,
                                        const uint32_t* d, int64_t numel) {
  uint32_t bits[base::kLineElements] = {}, all = 0;
  for (int64_t i = 0; i + base::kLineElements <= numel; i += base::kLineElements) {
    base::ask_for(i, a, b, c, d);
    for (int64_t lane = 0; lane < base::kLineElements; ++lane) {
      bits[lane] |= (a[i + lane] | b[i + lane]) | (c[i + lane] | d[i + lane]);
    }
  }
  for (const uint32_t lane : bits) all |= lane;
  return all;
}

FULLSHARD_VECTORISED void add_to_three(float* __restrict a, float* __restrict b,
                                       float* __restrict c, const float* __restrict from,
                                       int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    a[i] += from[i];
    b[i] += from[i];
    c[i] += from[i];
  }
}
#pragma GCC pop_options

uint32_t read_all(const Arrays& arrays) {
  std::atomic<uint32_t> bits = 0;
  const auto begin_of = [](const at::Tensor& array) {
    return static_cast<const uint32_t*>(array.const_data_ptr());
  };
  at::parallel_for(0, arrays.master.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    bits |=
        read_four(begin_of(arrays.master) + begin, begin_of(arrays.gradient) + begin,
                  begin_of(arrays.moment) + begin, begin_of(arrays.variance) + begin, end - begin);
  });
  return bits;
}

// Values are spoilt: `scratch` is not what the other lines update.
void add_all(const Arrays& scratch) {
  at::parallel_for(0, scratch.master.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    add_to_three(scratch.master.data_ptr<float>() + begin, scratch.moment.data_ptr<float>() + begin,
                 scratch.variance.data_ptr<float>() + begin,
                 scratch.gradient.const_data_ptr<float>() + begin, end - begin);
  });
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

optim::AdamWStep constants(double clip) {
  optim::AdamWStep step{
      .clip = clip, .beta1 = 0.9, .beta2 = 0.999, .step_size = 1e-4, .epsilon = 1e-8};
  step.decay = 1 - 1e-4 * 0.1;
  step.root_correction = 0.5;
  return step;
}

double clip_of(double squares) { return std::min(1.0, 1.0 / (std::sqrt(squares) + 1e-6)); }

// A result that nobody looks at would not be computed.
void keep(double value) { asm volatile("" : : "m"(value)); }

std::vector<Line> make_lines(const Arrays& arrays, const Arrays& scratch) {
  const auto plain = arrays.elements(false), shown = arrays.elements(true);
  const auto norm_of = [&arrays] {
    return engine::sum_of_squares(arrays.gradient.const_data_ptr<float>(), arrays.gradient.numel());
  };
  return {{"update", [=] { optim::adamw_step(constants(1), plain); }},
          {"update, cast to bf16", [=] { optim::adamw_step(constants(1), shown); }},
          {"unscale, clip, update, cast; norm known",
           [=] { optim::adamw_step(constants(0.7 / 1024), shown); }},
          {"norm of stored gradients, unscale, clip, update, cast",
           [=] { optim::adamw_step(constants(clip_of(norm_of())), shown); }},
          {"norm of stored gradients alone", [=] { keep(norm_of()); }, 4},
          {"roof: the four arrays are read", [&arrays] { keep(read_all(arrays)); }, 16},
          {"roof: three are read and written, one is read", [&scratch] { add_all(scratch); }}};
}

void run(int64_t numel, int threads, int repetitions) {
  at::set_num_threads(threads);
  const auto world = World::from_environment();
  const Arrays arrays(world.communicator(), numel), scratch(world.communicator(), numel);
  auto lines = make_lines(arrays, scratch);
  const auto from = at::full({threads, kCopyBytes}, 1, at::kByte);
  const auto to = at::full({threads, kCopyBytes}, 2, at::kByte);
  lines.push_back({"copy", [&] {
                     at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
                       const auto bytes = static_cast<size_t>((end - begin) * kCopyBytes);
                       std::memcpy(to.data_ptr<uint8_t>() + begin * kCopyBytes,
                                   from.const_data_ptr<uint8_t>() + begin * kCopyBytes, bytes);
                     });
                   }});
  for (int i = 0; i <= repetitions; ++i) {
    for (auto& line : lines) {
      const double seconds = seconds_of(line.run);
      if (i > 0) line.seconds.push_back(seconds);
    }
  }
  const double copy =
      2.0 * static_cast<double>(threads * kCopyBytes) / median(lines.back().seconds);
  const double update = median(lines.front().seconds);
  lines.pop_back();
  fmt::print(R"({{"what": "copy", "threads": {}, "gb_per_s": {:.2f}}})"
             "\n",
             threads, copy / 1e9);
  for (const auto& line : lines) {
    const double seconds = median(line.seconds);
    const double bandwidth = line.bytes * static_cast<double>(numel) / seconds;
    fmt::print(
        R"({{"what": "{}", "threads": {}, "parameters": {}, "bytes": {}, "s_per_1e9": {:.4f}, )"
        R"("least_s_per_1e9": {:.4f}, "of_copy": {:.3f}, "of_update": {:.3f}}})"
        "\n",
        line.what, threads, numel, line.bytes, seconds * 1e9 / static_cast<double>(numel),
        *std::min_element(line.seconds.begin(), line.seconds.end()) * 1e9 /
            static_cast<double>(numel),
        bandwidth / copy, seconds / update);
  }
}

}  // namespace
}  // namespace fullshard::bench

int main(int argc, char** argv) {
  int64_t numel = 100'000'000;
  int threads = 1, repetitions = 7;
  CLI::App app("AdamW on the CPU beside the bandwidth of a copy");
  app.add_option("--parameters", numel)->capture_default_str();
  app.add_option("--threads", threads)->capture_default_str();
  app.add_option("--repetitions", repetitions)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  fullshard::bench::run(numel, threads, repetitions);
}
