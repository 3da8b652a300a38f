// SPDX-License-Identifier: Apache-2.0
// Operators beside the compositions of libtorch that they replace: forward and backward, fp32.
//
//   bench_ops --threads 1        prints one Markdown table
//   bench_ops --only cross       only the lines whose name contains the word
//
// Ours and torch's take turns, so that a slow second of the machine hits both alike.
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/memory_probe.h"
#include "fullshard/ops/activation.h"
#include "fullshard/ops/attention/attention.h"
#include "fullshard/ops/loss/cross_entropy.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/rotary.h"

namespace fullshard::bench {
namespace {

using Tensors = std::vector<at::Tensor>;
using Operator = std::function<at::Tensor(const Tensors&)>;

struct Line {
  std::string what;
  Tensors inputs;  // leaves; each gets its gradient
  Operator own, torchs;
};

struct Measurement {
  std::vector<double> seconds = {};
  int64_t peak_bytes = 0;
};

void run_once(const Operator& function, const Tensors& inputs, const at::Tensor& gradient) {
  torch::autograd::grad({function(inputs)}, inputs, {gradient});
}

void measure(const Operator& function, const Line& line, const at::Tensor& gradient,
             Measurement& to) {
  const auto start = std::chrono::steady_clock::now();
  run_once(function, line.inputs, gradient);
  to.seconds.push_back(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

int64_t peak_bytes(const Operator& function, const Line& line, const at::Tensor& gradient) {
  const auto meter = std::make_shared<TensorMeter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  run_once(function, line.inputs, gradient);
  return meter->peak();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

void report(const Line& line, int repetitions) {
  const auto gradient = at::ones_like(line.own(line.inputs).detach());
  Measurement own, torchs;
  own.peak_bytes = peak_bytes(line.own, line, gradient);
  torchs.peak_bytes = peak_bytes(line.torchs, line, gradient);
  for (int i = 0; i < repetitions; ++i) {
    measure(line.own, line, gradient, own);
    measure(line.torchs, line, gradient, torchs);
  }
  const double ours = median(own.seconds), theirs = median(torchs.seconds);
  fmt::print("| {} | {:.3f} | {:.3f} | {:.2f} | {:.1f} | {:.1f} |\n", line.what, ours * 1e3,
             theirs * 1e3, theirs / ours, megabytes(own.peak_bytes), megabytes(torchs.peak_bytes));
}

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

Line norm_line(int64_t rows, int64_t width) {
  return {fmt::format("rms_norm {}x{}", rows, width),
          {leaf({rows, width}), leaf({width})},
          [](const Tensors& in) { return rms_norm(in[0], in[1], 1e-5); },
          [](const Tensors& in) { return at::rms_norm(in[0], in[1].sizes(), in[1], 1e-5); }};
}

Line rotary_line(int64_t batch, int64_t sequence, int64_t heads, int64_t width) {
  const auto frequencies = 1.0 / at::pow(10000, at::arange(width / 2, at::kFloat) / (width / 2));
  const auto table = make_rotary_table(frequencies, sequence);
  const auto torchs = [table](const Tensors& in) {
    const auto halves = in[0].transpose(1, 2).chunk(2, -1);
    return at::cat({halves[0] * table.cos - halves[1] * table.sin,
                    halves[1] * table.cos + halves[0] * table.sin},
                   -1)
        .transpose(1, 2);
  };
  return {fmt::format("rotary {}x{}x{}x{}", batch, sequence, heads, width),
          {leaf({batch, sequence, heads, width})},
          [table](const Tensors& in) { return apply_rotary(in[0], table); },
          torchs};
}

Line attention_line(int64_t batch, int64_t sequence, int64_t heads, int64_t kv_heads,
                    int64_t width) {
  const auto torchs = [](const Tensors& in) {
    return at::scaled_dot_product_attention(in[0].transpose(1, 2), in[1].transpose(1, 2),
                                            in[2].transpose(1, 2), {}, 0.0, true, {},
                                            in[0].size(2) != in[1].size(2))
        .transpose(1, 2);
  };
  return {fmt::format("causal attention {}x{}x{}({})x{}", batch, sequence, heads, kv_heads, width),
          {leaf({batch, sequence, heads, width}), leaf({batch, sequence, kv_heads, width}),
           leaf({batch, sequence, kv_heads, width})},
          [](const Tensors& in) { return attention(in[0], in[1], in[2], {.causal = true}); },
          torchs};
}

Line swiglu_line(int64_t rows, int64_t width) {
  return {fmt::format("swiglu {}x{}", rows, width),
          {leaf({rows, width}), leaf({rows, width})},
          [](const Tensors& in) { return swiglu(in[0], in[1]); },
          [](const Tensors& in) { return at::silu(in[0]) * in[1]; }};
}

Line gelu_line(int64_t rows, int64_t width) {
  return {fmt::format("tanh gelu {}x{}", rows, width),
          {leaf({rows, width})},
          [](const Tensors& in) { return gelu(in[0], Gelu::tanh); },
          [](const Tensors& in) { return at::gelu(in[0], "tanh"); }};
}

Line cross_entropy_line(int64_t rows, int64_t width, int64_t vocabulary, int64_t chunk_rows) {
  const auto labels = at::randint(0, vocabulary, {rows}, at::kLong);
  auto weight = (at::randn({vocabulary, width}) * 0.02).requires_grad_();
  return {fmt::format("linear_cross_entropy {}x{}x{}{}", rows, width, vocabulary,
                      chunk_rows > 0 ? fmt::format(", chunks of {}", chunk_rows) : ""),
          {leaf({rows, width}), weight},
          [labels, chunk_rows](const Tensors& in) {
            return linear_cross_entropy(in[0], in[1], {}, labels, {.chunk_rows = chunk_rows});
          },
          [labels](const Tensors& in) {
            return at::cross_entropy_loss(at::linear(in[0], in[1]), labels);
          }};
}

std::vector<Line> make_lines(const std::vector<int64_t>& chunks) {
  std::vector<Line> lines = {norm_line(1024, 288),
                             norm_line(128, 768),
                             rotary_line(4, 256, 6, 48),
                             rotary_line(1, 128, 12, 64),
                             swiglu_line(1024, 768),
                             swiglu_line(128, 2048),
                             gelu_line(1024, 3072),
                             attention_line(4, 256, 6, 6, 48),
                             attention_line(1, 128, 12, 12, 64),
                             attention_line(1, 1024, 32, 4, 64)};
  for (const int64_t chunk : chunks) {
    for (const auto& [rows, width] :
         {std::pair<int64_t, int64_t>{1024, 288}, {128, 768}, {1024, 768}, {128, 288}}) {
      lines.push_back(cross_entropy_line(rows, width, 32000, chunk));
    }
  }
  return lines;
}

void run(int threads, int repetitions, const std::string& only,
         const std::vector<int64_t>& chunks) {
  at::set_num_threads(threads);
  fmt::print(
      "| forward and backward, {} thread(s) | ours ms | torch ms | torch/ours | ours peak MB "
      "| torch peak MB |\n|---|---|---|---|---|---|\n",
      threads);
  for (const auto& line : make_lines(chunks)) {
    if (line.what.find(only) != std::string::npos) report(line, repetitions);
  }
}

}  // namespace
}  // namespace fullshard::bench

int main(int argc, char** argv) {
  int threads = 1, repetitions = 15;
  std::string only;
  std::vector<int64_t> chunks = {0};
  CLI::App app("Operators beside libtorch's");
  app.add_option("--threads", threads)->capture_default_str();
  app.add_option("--repetitions", repetitions)->capture_default_str();
  app.add_option("--only", only, "lines whose name contains this");
  app.add_option("--chunks", chunks, "rows of logits at once; 0: chosen by size")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  fullshard::bench::run(threads, repetitions, only, chunks);
}
