// SPDX-License-Identifier: Apache-2.0
// The step of AdamW on a GPU, with norm, unscaling, clipping and cast, beside the bandwidth of a
// copy and torch's fused step.
//
//   bench_optimizer_cuda --parameters 1000000000 --tensors 200
//
// prints one JSON line for each measurement. Repetitions go round all lines, so that a slow second
// of the machine hits every line alike. Times are the device's, between events, with the host ahead
// of it as in training: a sum over 4 GB keeps the device busy while the host prepares its launches,
// and leaves nothing in the caches that would have to be written back.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "fullshard/engine/gradients/device_norm.h"
#include "fullshard/optim/cuda/device_step.h"

namespace fullshard::bench {
namespace {

const at::Device kGpu(at::kCUDA, 0);
constexpr int64_t kCopyBytes = int64_t{1} << 32;

// Masters whole and seen nowhere else, whole beside their bf16 values, or as those and the rest.
enum class Kept { whole, shown, in_halves };

// Flat buffers, as the engine has them, and a view of each tensor.
struct Arrays {
  Arrays(int64_t numel, int64_t num_tensors, at::ScalarType gradient_dtype)
      : master(at::full({numel}, 0.5f, options(at::kFloat))),
        gradient(at::full({numel}, 1e-3f, options(gradient_dtype))),
        moment(at::full({numel}, 1e-3f, options(at::kFloat))),
        variance(at::full({numel}, 1e-6f, options(at::kFloat))),
        shown(at::full({numel}, 0.5f, options(at::kBFloat16))),
        lower(at::zeros({numel}, options(at::kShort))) {
    const int64_t each = numel / num_tensors / 8 * 8;
    for (int64_t i = 0; i < num_tensors; ++i) ranges.push_back({i * each, each});
    ranges.back().second = numel - ranges.back().first;
  }

  static at::TensorOptions options(at::ScalarType dtype) {
    return at::TensorOptions().dtype(dtype).device(kGpu);
  }

  std::vector<at::Tensor> views(const at::Tensor& flat) const {
    std::vector<at::Tensor> tensors;
    for (const auto& [first, numel] : ranges) tensors.push_back(flat.narrow(0, first, numel));
    return tensors;
  }

  std::vector<optim::DevicePiece> pieces(Kept kept) const {
    const auto at = [](const at::Tensor& flat, int64_t first, optim::StoredAs stored) {
      return optim::DeviceArray{static_cast<char*>(flat.data_ptr()) + first * flat.element_size(),
                                stored};
    };
    const auto of_gradient =
        gradient.scalar_type() == at::kFloat ? optim::StoredAs::fp32 : optim::StoredAs::bf16;
    std::vector<optim::DevicePiece> all;
    for (const auto& [first, numel] : ranges) {
      optim::DevicePiece piece;
      piece.master = kept == Kept::in_halves ? at(lower, first, optim::StoredAs::lower_half)
                                             : at(master, first, optim::StoredAs::fp32);
      piece.gradient = at(gradient, first, of_gradient);
      piece.states[0] = at(moment, first, optim::StoredAs::fp32);
      piece.states[1] = at(variance, first, optim::StoredAs::fp32);
      if (kept != Kept::whole) piece.shown = at(shown, first, optim::StoredAs::bf16);
      piece.numel = numel;
      all.push_back(piece);
    }
    return all;
  }

  at::Tensor master, gradient, moment, variance, shown, lower;
  std::vector<std::pair<int64_t, int64_t>> ranges;  // first element, numel
};

struct Line {
  std::string what;
  double bytes;  // that must move, for each parameter
  std::function<void()> run;
  std::vector<double> seconds = {};
};

double seconds_of(const std::function<void()>& run, const std::function<void()>& before) {
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  const auto stream = guard.getStream(kGpu);
  c10::Event start(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
  before();
  start.record(stream);
  run();
  end.record(stream);
  end.synchronize();
  return start.elapsedTime(end) / 1e3;
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

// What the engine does: the numbers of all tensors in two launches, the factor stays there.
at::Tensor clip_factor_of(const Arrays& arrays) {
  std::vector<engine::GradientPiece> gradients;
  for (const auto& view : arrays.views(arrays.gradient)) {
    gradients.push_back({view, static_cast<int64_t>(gradients.size())});
  }
  const auto numbers = engine::norms_on_device(engine::NormKind::sum_of_squares, gradients,
                                               static_cast<int64_t>(gradients.size()), kGpu);
  return engine::clip_factor_on_device(engine::NormKind::sum_of_squares, numbers, {1.0f, 1});
}

void fullshard_step(const optim::DeviceTable& table, const at::Tensor& factor) {
  optim::DevicePass pass{.table = table, .settings = {{}}};
  pass.factor_on_device = factor;
  optim::step_on_device(pass, {constants(1)});
}

struct Tables {
  explicit Tables(const Arrays& arrays) {
    whole.set(arrays.pieces(Kept::whole), kGpu);
    shown.set(arrays.pieces(Kept::shown), kGpu);
    if (arrays.gradient.scalar_type() != at::kFloat) return;  // halves are for fp32 gradients
    in_halves.set(arrays.pieces(Kept::in_halves), kGpu);
  }
  optim::DeviceTable whole, shown, in_halves;
};

std::vector<Line> fullshard_lines(const Arrays& arrays, const Tables& tables) {
  const auto of_gradient = static_cast<double>(arrays.gradient.element_size());
  const auto clipped_step = [&](const optim::DeviceTable& table) {
    fullshard_step(table, clip_factor_of(arrays).narrow(0, 1, 1));
  };
  std::vector<Line> lines = {
      {"fullshard: update", 24 + of_gradient, [&] { fullshard_step(tables.whole, {}); }},
      {"fullshard: update, cast to bf16", 26 + of_gradient,
       [&] { fullshard_step(tables.shown, {}); }},
      {"fullshard: norm", of_gradient, [&] { clip_factor_of(arrays); }},
      {"fullshard: norm, clip, update, cast to bf16", 26 + 2 * of_gradient,
       [&, clipped_step] { clipped_step(tables.shown); }}};
  if (tables.in_halves.num_blocks() > 0) {
    lines.push_back({"fullshard: update, masters in halves", 24 + of_gradient,
                     [&] { fullshard_step(tables.in_halves, {}); }});
    lines.push_back({"fullshard: norm, clip, update, masters in halves", 24 + 2 * of_gradient,
                     [&, clipped_step] { clipped_step(tables.in_halves); }});
  }
  return lines;
}

// The same by torch's own multi-tensor kernels; gradients in fp32, as it wants them.
std::vector<Line> torch_lines(const Arrays& arrays) {
  const auto masters = arrays.views(arrays.master), gradients = arrays.views(arrays.gradient),
             moments = arrays.views(arrays.moment), variances = arrays.views(arrays.variance),
             shown = arrays.views(arrays.shown);
  std::vector<at::Tensor> steps;
  for (size_t i = 0; i < masters.size(); ++i) {
    steps.push_back(at::full({}, 10.0f, Arrays::options(at::kFloat)));
  }
  auto update = [=] {
    at::_fused_adamw_(masters, gradients, moments, variances, {}, steps, 1e-4, 0.9, 0.999, 0.1,
                      1e-8, false, false);
  };
  auto clip = [=] {
    const auto norm = at::stack(at::_foreach_norm(gradients)).norm();
    at::_foreach_mul_(gradients, at::clamp_max(1.0 / (norm + 1e-6), 1.0));
  };
  auto cast = [=] { at::_foreach_copy_(shown, masters); };
  return {{"torch: _fused_adamw_", 28, update},
          {"torch: norm, clip, _fused_adamw_, cast to bf16", 34, [=] {
             clip();
             update();
             cast();
           }}};
}

void print(const Line& line, int64_t numel, double copy) {
  const double seconds = median(line.seconds);
  const double bandwidth = line.bytes * static_cast<double>(numel) / seconds;
  const auto per_billion = [&](double value) { return value * 1e12 / static_cast<double>(numel); };
  fmt::print(
      R"({{"what": "{}", "parameters": {}, "bytes_per_parameter": {}, "ms_per_1e9": {:.3f}, )"
      R"("least_ms_per_1e9": {:.3f}, "gb_per_s": {:.0f}, "of_copy": {:.3f}}})"
      "\n",
      line.what, numel, line.bytes, per_billion(seconds),
      per_billion(*std::min_element(line.seconds.begin(), line.seconds.end())), bandwidth / 1e9,
      bandwidth / copy);
}

void run(int64_t numel, int64_t num_tensors, bool bf16_gradients, int repetitions) {
  const Arrays arrays(numel, num_tensors, bf16_gradients ? at::kBFloat16 : at::kFloat);
  const Tables tables(arrays);
  auto lines = fullshard_lines(arrays, tables);
  if (!bf16_gradients) {
    for (auto& line : torch_lines(arrays)) lines.push_back(std::move(line));
  }
  const auto from = at::zeros({kCopyBytes}, Arrays::options(at::kByte));
  auto to = at::zeros_like(from);
  const auto copy_all = [&] { to.copy_(from); };
  const auto read_all = [&] { from.view(at::kFloat).sum(); };
  lines.push_back({"copy", 0, copy_all});
  for (int i = 0; i < repetitions + 2; ++i) {
    for (auto& line : lines) {
      const double seconds = seconds_of(line.run, read_all);
      if (i >= 2) line.seconds.push_back(seconds);
    }
  }
  const double copy = 2.0 * static_cast<double>(kCopyBytes) / median(lines.back().seconds);
  lines.pop_back();
  fmt::print(R"({{"what": "copy", "gb_per_s": {:.0f}, "tensors": {}, "gradients": "{}"}})"
             "\n",
             copy / 1e9, num_tensors, bf16_gradients ? "bf16" : "fp32");
  for (const auto& line : lines) print(line, numel, copy);
}

}  // namespace
}  // namespace fullshard::bench

int main(int argc, char** argv) {
  int64_t numel = 1'000'000'000, num_tensors = 200;
  int repetitions = 15;
  bool bf16_gradients = false;
  CLI::App app("AdamW on a GPU beside the bandwidth of a copy and torch's fused step");
  app.add_option("--parameters", numel)->capture_default_str();
  app.add_option("--tensors", num_tensors)->capture_default_str();
  app.add_option("--repetitions", repetitions)->capture_default_str();
  app.add_flag("--bf16-gradients", bf16_gradients);
  CLI11_PARSE(app, argc, argv);
  if (!at::hasCUDA()) {
    fmt::print(stderr, "bench_optimizer_cuda: there is no GPU\n");
    return 1;
  }
  fullshard::bench::run(numel, num_tensors, bf16_gradients, repetitions);
}
