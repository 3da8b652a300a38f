// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/device_operators.h"

#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/ops/cuda/activation_rows.h"
#include "fullshard/ops/cuda/column_sums.h"
#include "fullshard/ops/cuda/dropout_rows.h"
#include "fullshard/ops/cuda/entropy_rows.h"
#include "fullshard/ops/cuda/norm_rows.h"
#include "fullshard/ops/cuda/rotate_rows.h"
#include "fullshard/ops/cuda/segment_sums.h"
#include "fullshard/ops/cuda/widen_rows.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::ops {
namespace {

// The device of a tensor and its current stream, for as long as a launch takes.
class Launch {
 public:
  explicit Launch(const at::Tensor& tensor)
      : guard_(tensor.device()), stream_(c10::cuda::getCurrentCUDAStream().stream()) {}
  cudaStream_t stream() const { return stream_; }
  void check_error() const { C10_CUDA_KERNEL_LAUNCH_CHECK(); }

 private:
  c10::cuda::CUDAGuard guard_;
  cudaStream_t stream_;
};

KernelDtype dtype_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? KernelDtype::fp32 : KernelDtype::bf16;
}

const void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}
void* mutable_data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}
float* floats_of(const at::Tensor& tensor) { return static_cast<float*>(mutable_data_of(tensor)); }
const int64_t* integers_of(const at::Tensor& tensor) {
  return static_cast<const int64_t*>(data_of(tensor));
}

at::Tensor make_partials(const at::Tensor& like, int64_t num_rows, int64_t width) {
  return at::empty({num_rows, width}, like.options().dtype(at::kFloat));
}

NormRows norm_rows(const at::Tensor& input, const NormTerms& terms,
                   const NormStatistics& statistics) {
  const int64_t width = input.size(-1);
  return {.dtype = dtype_of(input),
          .num_rows = width == 0 ? 0 : input.numel() / width,
          .width = width,
          .input = data_of(input),
          .weight = data_of(terms.weight),
          .bias = data_of(terms.bias),
          .centred = terms.centred,
          .mean = floats_of(statistics.mean),
          .inverse = floats_of(statistics.inverse)};
}

// Of the current device's generator, which goes on.
DropoutDraw next_draw() {
  const auto generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      std::nullopt, at::cuda::detail::getDefaultCUDAGenerator());
  const std::lock_guard lock(generator->mutex_);
  const at::PhiloxCudaState state = generator->philox_cuda_state(kDropoutDraws);
  if (!state.captured_) return {.seed = state.seed_.val, .offset = state.offset_.val};
  return {.seed_at = state.seed_.ptr,
          .offset_at = state.offset_.ptr,
          .further = state.offset_intragraph_};
}

ElementDropout element_dropout(const Dropout& dropout) {
  if (dropout.probability == 0) return {};
  constexpr double kNumbers = 65536;  // of 16 bits
  const double threshold =
      std::clamp(std::round(dropout.probability * kNumbers), 1.0, kNumbers - 1);
  ElementDropout made{.threshold = static_cast<uint32_t>(threshold),
                      .scale = static_cast<float>(kNumbers / (kNumbers - threshold))};
  if (dropout.draws) {
    made.draw = next_draw();
    made.drawn = dropout.drawn.mutable_data_ptr<int64_t>();
  } else {
    made.draw.seed_at = integers_of(dropout.drawn);
    made.draw.offset_at = made.draw.seed_at + 1;
  }
  return made;
}

ActivationRows activation_rows(const at::Tensor& input, int64_t width, Activation kind) {
  const int64_t stride = input.size(-1);
  const bool is_gated = stride != width;
  const auto* first = static_cast<const char*>(data_of(input));
  ActivationRows rows{.dtype = dtype_of(input),
                      .kind = static_cast<RowActivation>(kind),
                      .num_rows = stride == 0 ? 0 : input.numel() / stride,
                      .width = width,
                      .input = first,
                      .up = is_gated ? first + width * input.element_size() : nullptr,
                      .stride = stride};
  // Without rows of two parts everything is one row, of a width that packs well.
  if (!is_gated) rows = {rows.dtype, rows.kind, 1, input.numel(), first, nullptr, input.numel()};
  return rows;
}

static_assert(static_cast<int>(RowActivation::gelu) == static_cast<int>(Activation::gelu) &&
              static_cast<int>(RowActivation::gelu_tanh) ==
                  static_cast<int>(Activation::gelu_tanh) &&
              static_cast<int>(RowActivation::relu) == static_cast<int>(Activation::relu) &&
              static_cast<int>(RowActivation::silu) == static_cast<int>(Activation::silu));

RotaryRows rotary_rows(const RotaryTable* table, const at::Tensor& positions, int64_t sequence,
                       int64_t half) {
  return {
      .cosines = table == nullptr ? nullptr : floats_of(table->cos),
      .sines = table == nullptr ? nullptr : floats_of(table->sin),
      .positions = positions.defined() && positions.numel() > 0 ? integers_of(positions) : nullptr,
      .sequence = sequence,
      .half = half};
}

}  // namespace

bool has_cuda_kernel(const at::Tensor& tensor) {
  return tensor.is_cuda() &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

bool has_cuda_kernel(std::initializer_list<at::Tensor> tensors) {
  const at::Tensor& first = *tensors.begin();
  if (at::autocast::is_autocast_enabled(at::kCUDA)) return false;
  for (const auto& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (!has_cuda_kernel(tensor) || tensor.scalar_type() != first.scalar_type()) return false;
    if (tensor.device() != first.device()) return false;
  }
  return true;
}

void device_column_sums(const WideTarget& target, const at::Tensor& matrix) {
  const int64_t num_rows = matrix.size(0), width = matrix.size(1);
  const auto dtype = dtype_of(matrix);
  // Rows that begin at packs of 16 bytes are read by packs: columns behind the last are summed
  // apart.
  const int64_t pack = 16 / matrix.element_size();
  const bool ends_within_pack = width % pack != 0 && width > pack && matrix.stride(0) % pack == 0;
  if (ends_within_pack && !tensor::is_pretended()) {
    const int64_t whole = width / pack * pack;
    for (const auto& [first, count] : {std::pair(int64_t{0}, whole), {whole, width - whole}}) {
      device_column_sums({target.values.narrow(0, first, count), target.accumulate},
                         matrix.narrow(1, first, count));
    }
    return;
  }
  const auto partials = make_partials(matrix, num_partial_rows(num_rows, width, dtype), width);
  if (tensor::is_pretended()) return tensor::note_kernel("column_sums", {matrix});
  const Launch launch(matrix);
  column_sums(floats_of(target.values), target.accumulate, data_of(matrix), dtype, num_rows, width,
              matrix.stride(0), floats_of(partials), launch.stream());
  launch.check_error();
}

NormStatistics device_norm(const at::Tensor& output, const at::Tensor& input,
                           const NormTerms& terms, const at::Tensor& largest) {
  const int64_t num_rows = input.numel() / std::max<int64_t>(input.size(-1), 1);
  const auto wide = input.options().dtype(at::kFloat);
  NormStatistics statistics{{}, at::empty({num_rows}, wide)};
  if (terms.centred) statistics.mean = at::empty({num_rows}, wide);
  if (tensor::is_pretended()) {
    tensor::note_kernel("norm", {input, output});
    return statistics;
  }
  const Launch launch(input);
  normalise_rows(mutable_data_of(output), norm_rows(input, terms, statistics),
                 static_cast<float>(terms.epsilon), floats_of(largest), launch.stream());
  launch.check_error();
  return statistics;
}

void device_norm_again(const at::Tensor& output, const at::Tensor& input, const NormTerms& terms,
                       const NormStatistics& statistics) {
  if (tensor::is_pretended()) return tensor::note_kernel("norm", {input, output});
  const Launch launch(input);
  normalise_rows_again(mutable_data_of(output), norm_rows(input, terms, statistics),
                       launch.stream());
  launch.check_error();
}

void device_norm_gradient(const NormGradientTargets& targets, const at::Tensor& output_gradient,
                          const at::Tensor& added, const at::Tensor& input, const NormTerms& terms,
                          const NormStatistics& statistics) {
  const auto rows = norm_rows(input, terms, statistics);
  const int64_t num_partials = num_norm_partials(rows);
  const auto room_for = [&](const WideTarget& target) {
    return target.values.defined() ? make_partials(input, num_partials, rows.width) : at::Tensor();
  };
  const auto weight = room_for(targets.weight), bias = room_for(targets.bias);
  if (tensor::is_pretended())
    return tensor::note_kernel("norm_backward", {input, input, output_gradient, added});
  const Launch launch(input);
  norm_gradient_rows({.input_gradient = mutable_data_of(targets.input),
                      .output_gradient = data_of(output_gradient),
                      .added = data_of(added),
                      .weight_partials = floats_of(weight),
                      .bias_partials = floats_of(bias),
                      .largest = floats_of(targets.largest)},
                     rows, launch.stream());
  const auto partial_rows = [](const WideTarget& target, const at::Tensor& partials) {
    return PartialRows{floats_of(target.values), target.accumulate, floats_of(partials)};
  };
  sum_partials(partial_rows(targets.weight, weight), partial_rows(targets.bias, bias), num_partials,
               rows.width, launch.stream());
  launch.check_error();
}

void device_activate(const at::Tensor& output, const at::Tensor& input, Activation kind,
                     const at::Tensor& largest, const Dropout& dropout) {
  if (tensor::is_pretended()) return tensor::note_kernel("activation", {input, output});
  const Launch launch(input);
  auto rows = activation_rows(input, output.size(-1), kind);
  rows.dropout = element_dropout(dropout);
  activate_rows(mutable_data_of(output), rows, floats_of(largest), launch.stream());
  launch.check_error();
}

void device_activate_gradient(const at::Tensor& input_gradient, const at::Tensor& output,
                              const at::Tensor& output_gradient, const at::Tensor& input,
                              Activation kind, const at::Tensor& largest, const Dropout& dropout) {
  if (tensor::is_pretended())
    return tensor::note_kernel("activation_backward",
                               {input, input_gradient, output_gradient, output});
  const Launch launch(input);
  const int64_t width = output_gradient.size(-1);
  auto rows = activation_rows(input, width, kind);
  rows.dropout = element_dropout(dropout);
  auto* first = static_cast<char*>(mutable_data_of(input_gradient));
  activate_gradient_rows(
      {.output_gradient = data_of(output_gradient),
       .input_gradient = first,
       .up_gradient = rows.up == nullptr ? nullptr : first + width * input.element_size(),
       .gradient_stride = rows.stride,
       .output = mutable_data_of(output),
       .largest = floats_of(largest)},
      rows, launch.stream());
  launch.check_error();
}

void device_drop(const at::Tensor& output, const at::Tensor& values, const at::Tensor& residual,
                 const Dropout& dropout) {
  if (tensor::is_pretended()) return tensor::note_kernel("dropout", {output, values, residual});
  const Launch launch(output);
  drop_rows({.dtype = dtype_of(values),
             .output = mutable_data_of(output),
             .values = data_of(values),
             .residual = data_of(residual),
             .count = values.numel(),
             .dropout = element_dropout(dropout)},
            launch.stream());
  launch.check_error();
}

void device_rotate(const at::Tensor& rows, int64_t num_turned, const RotaryTable& table,
                   const at::Tensor& positions, float sign) {
  if (tensor::is_pretended()) return tensor::note_kernel("rotary", {rows, rows});
  const Launch launch(rows);
  const int64_t width = rows.size(-1);
  rotate_rows(mutable_data_of(rows), dtype_of(rows), rows.size(0) * rows.size(1), width, num_turned,
              rotary_rows(&table, positions, rows.size(1), table.cos.size(1)), sign,
              launch.stream());
  launch.check_error();
}

void device_pack_heads(const at::Tensor& rows, const at::Tensor& query, const at::Tensor& key,
                       const at::Tensor& value, const RotaryTable* table,
                       const at::Tensor& positions) {
  if (tensor::is_pretended())
    return tensor::note_kernel("rotary_backward", {rows, query, key, value});
  const Launch launch(rows);
  const HeadSources sources{.query = data_of(query),
                            .key = data_of(key),
                            .value = data_of(value),
                            .num_heads = query.size(2),
                            .num_kv_heads = key.size(2)};
  pack_and_turn_back(mutable_data_of(rows), dtype_of(rows), query.size(0) * query.size(1), sources,
                     rotary_rows(table, positions, query.size(1), query.size(3) / 2),
                     launch.stream());
  launch.check_error();
}

void device_entropy(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& labels,
                    int64_t ignore_index, double smoothing, bool wants_gradient) {
  if (tensor::is_pretended()) return tensor::note_kernel("cross_entropy", {logits, logits});
  const Launch launch(logits);
  entropy_rows({.dtype = dtype_of(logits),
                .logits = mutable_data_of(logits),
                .losses = floats_of(losses),
                .labels = integers_of(labels),
                .num_rows = logits.size(0),
                .vocabulary = logits.size(1),
                .row_stride = logits.stride(0),
                .ignore_index = ignore_index,
                .smoothing = static_cast<float>(smoothing),
                .wants_gradient = wants_gradient},
               launch.stream());
  launch.check_error();
}

void device_widen_rows(const at::Tensor& output, const at::Tensor& values,
                       const at::Tensor& scales) {
  if (tensor::is_pretended()) return tensor::note_kernel("widen_rows", {output, values});
  const Launch launch(output);
  widen_rows({.dtype = dtype_of(output),
              .num_rows = values.size(0),
              .width = values.size(1),
              .output = mutable_data_of(output),
              .values = static_cast<const int8_t*>(data_of(values)),
              .scales = static_cast<const float*>(data_of(scales))},
             launch.stream());
  launch.check_error();
}

void device_add_rows(const at::Tensor& table, const at::Tensor& indices, const at::Tensor& rows,
                     int64_t skipped) {
  const auto [sorted, order] = indices.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const int64_t num_rows = rows.size(0), width = rows.size(1);
  const auto partials = make_partials(rows, 2 * num_segment_chunks(num_rows), width);
  if (tensor::is_pretended()) return tensor::note_kernel("add_rows", {rows, rows, rows});
  const Launch launch(rows);
  add_segments({.dtype = dtype_of(rows),
                .table = floats_of(table),
                .rows = data_of(rows),
                .sorted = integers_of(sorted),
                .order = integers_of(order),
                .num_rows = num_rows,
                .width = width,
                .skipped = skipped,
                .partials = floats_of(partials)},
               launch.stream());
  launch.check_error();
}

}  // namespace fullshard::ops
