// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/device_operators.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "fullshard/ops/cuda/activation_rows.h"
#include "fullshard/ops/cuda/column_sums.h"
#include "fullshard/ops/cuda/dropout_rows.h"
#include "fullshard/ops/cuda/entropy_rows.h"
#include "fullshard/ops/cuda/norm_rows.h"
#include "fullshard/ops/cuda/partial_rows.h"
#include "fullshard/ops/cuda/rotate_rows.h"
#include "fullshard/ops/cuda/segment_sums.h"
#include "fullshard/ops/cuda/widen_rows.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/tensor/device_runtime.h"
#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::ops {
namespace {

using tensor::KernelLaunch;
using tensor::launch_kernel;

KernelDtype dtype_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? KernelDtype::fp32 : KernelDtype::bf16;
}

at::Tensor make_partials(const at::Tensor& like, int64_t num_rows, int64_t width) {
  return at::empty({num_rows, width}, like.options().dtype(at::kFloat));
}

NormRows norm_rows(const KernelLaunch& launch, const at::Tensor& input, const NormTerms& terms,
                   const NormStatistics& statistics) {
  return {.dtype = dtype_of(input),
          .num_rows = num_rows_of(input),
          .width = input.size(-1),
          .input = launch.read(input),
          .weight = launch.read(terms.weight),
          .bias = launch.read(terms.bias),
          .centred = terms.centred,
          .mean = launch.write_as<float>(statistics.mean),
          .inverse = launch.write_as<float>(statistics.inverse)};
}

ElementDropout element_dropout(const KernelLaunch& launch, const Dropout& dropout,
                               at::Device device) {
  if (dropout.probability == 0) return {};
  constexpr double kNumbers = 65536;  // of 16 bits
  const double threshold =
      std::clamp(std::round(dropout.probability * kNumbers), 1.0, kNumbers - 1);
  ElementDropout made{.threshold = static_cast<uint32_t>(threshold),
                      .scale = static_cast<float>(kNumbers / (kNumbers - threshold))};
  if (dropout.draws) {
    made.draw = tensor::draw_random(device, kDropoutDraws);
    made.drawn = launch.write_as<int64_t>(dropout.drawn);
  } else {
    made.draw.seed_at = launch.read_as<int64_t>(dropout.drawn);
    made.draw.offset_at = made.draw.seed_at + 1;
  }
  return made;
}

ActivationRows activation_rows(const KernelLaunch& launch, const at::Tensor& input, int64_t width,
                               Activation kind) {
  const int64_t stride = input.size(-1);
  const bool is_gated = stride != width;
  const auto* first = static_cast<const char*>(launch.read(input));
  ActivationRows rows{.dtype = dtype_of(input),
                      .kind = static_cast<RowActivation>(kind),
                      .num_rows = num_rows_of(input),
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

RotaryRows rotary_rows(const KernelLaunch& launch, const RotaryTable* table,
                       const at::Tensor& positions, int64_t sequence, int64_t half) {
  return {.cosines = table == nullptr ? nullptr : launch.read_as<float>(table->cos),
          .sines = table == nullptr ? nullptr : launch.read_as<float>(table->sin),
          .num_positions = table == nullptr ? 0 : table->cos.size(0),
          .positions = launch.read_as<int64_t>(positions),
          .sequence = sequence,
          .half = half};
}

}  // namespace

bool has_cuda_kernel(const at::Tensor& tensor) {
  return tensor.is_cuda() &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16) &&
         (tensor::has_device_kernels() || tensor::is_pretended());
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
  const int64_t pack = pack_of(dtype);
  if (width % pack != 0 && width > pack && matrix.stride(0) % pack == 0) {
    const int64_t whole = width / pack * pack;
    for (const auto& [first, count] : {std::pair(int64_t{0}, whole), {whole, width - whole}}) {
      device_column_sums({target.values.narrow(0, first, count), target.accumulate},
                         matrix.narrow(1, first, count));
    }
    return;
  }
  const auto partials = make_partials(matrix, num_partial_rows(num_rows, width, dtype), width);
  launch_kernel("column_sums", matrix.device(), {matrix}, [&](const KernelLaunch& launch) {
    column_sums(launch.write_as<float>(target.values), target.accumulate, launch.read(matrix),
                dtype, num_rows, width, matrix.stride(0), launch.write_as<float>(partials),
                launch.stream());
  });
}

NormStatistics device_norm(const at::Tensor& output, const at::Tensor& input,
                           const NormTerms& terms, const at::Tensor& largest) {
  const auto wide = input.options().dtype(at::kFloat);
  NormStatistics statistics{{}, at::empty({num_rows_of(input)}, wide)};
  if (terms.centred) statistics.mean = at::empty({num_rows_of(input)}, wide);
  launch_kernel("norm", input.device(), {input, output}, [&](const KernelLaunch& launch) {
    normalise_rows(launch.write(output), norm_rows(launch, input, terms, statistics),
                   static_cast<float>(terms.epsilon), launch.write_as<float>(largest),
                   launch.stream());
  });
  return statistics;
}

void device_norm_again(const at::Tensor& output, const at::Tensor& input, const NormTerms& terms,
                       const NormStatistics& statistics) {
  launch_kernel("norm", input.device(), {input, output}, [&](const KernelLaunch& launch) {
    normalise_rows_again(launch.write(output), norm_rows(launch, input, terms, statistics),
                         launch.stream());
  });
}

void device_norm_gradient(const NormGradientTargets& targets, const at::Tensor& output_gradient,
                          const at::Tensor& added, const at::Tensor& input, const NormTerms& terms,
                          const NormStatistics& statistics) {
  const int64_t width = input.size(-1);
  const int64_t num_partials = num_norm_partials(dtype_of(input), num_rows_of(input), width);
  const auto room_for = [&](const WideTarget& target) {
    return target.values.defined() ? make_partials(input, num_partials, width) : at::Tensor();
  };
  const auto weight = room_for(targets.weight), bias = room_for(targets.bias);
  launch_kernel(
      "norm_backward", input.device(), {input, input, output_gradient, added},
      [&](const KernelLaunch& launch) {
        norm_gradient_rows({.input_gradient = launch.write(targets.input),
                            .output_gradient = launch.read(output_gradient),
                            .added = launch.read(added),
                            .weight_partials = launch.write_as<float>(weight),
                            .bias_partials = launch.write_as<float>(bias),
                            .largest = launch.write_as<float>(targets.largest)},
                           norm_rows(launch, input, terms, statistics), launch.stream());
        const auto partial_rows = [&](const WideTarget& target, const at::Tensor& partials) {
          return PartialRows{launch.write_as<float>(target.values), target.accumulate,
                             launch.read_as<float>(partials)};
        };
        sum_partials(partial_rows(targets.weight, weight), partial_rows(targets.bias, bias),
                     num_partials, width, launch.stream());
      });
}

void device_activate(const at::Tensor& output, const at::Tensor& input, Activation kind,
                     const at::Tensor& largest, const Dropout& dropout) {
  launch_kernel("activation", input.device(), {input, output}, [&](const KernelLaunch& launch) {
    auto rows = activation_rows(launch, input, output.size(-1), kind);
    rows.dropout = element_dropout(launch, dropout, input.device());
    activate_rows(launch.write(output), rows, launch.write_as<float>(largest), launch.stream());
  });
}

void device_activate_gradient(const at::Tensor& input_gradient, const at::Tensor& output,
                              const at::Tensor& output_gradient, const at::Tensor& input,
                              Activation kind, const at::Tensor& largest, const Dropout& dropout) {
  launch_kernel(
      "activation_backward", input.device(), {input, input_gradient, output_gradient, output},
      [&](const KernelLaunch& launch) {
        const int64_t width = output_gradient.size(-1);
        auto rows = activation_rows(launch, input, width, kind);
        rows.dropout = element_dropout(launch, dropout, input.device());
        auto* first = static_cast<char*>(launch.write(input_gradient));
        activate_gradient_rows(
            {.output_gradient = launch.read(output_gradient),
             .input_gradient = first,
             .up_gradient = rows.up == nullptr ? nullptr : first + width * input.element_size(),
             .gradient_stride = rows.stride,
             .output = launch.write(output),
             .largest = launch.write_as<float>(largest)},
            rows, launch.stream());
      });
}

void device_drop(const at::Tensor& output, const at::Tensor& values, const at::Tensor& residual,
                 const Dropout& dropout) {
  launch_kernel("dropout", output.device(), {output, values, residual},
                [&](const KernelLaunch& launch) {
                  drop_rows({.dtype = dtype_of(values),
                             .output = launch.write(output),
                             .values = launch.read(values),
                             .residual = launch.read(residual),
                             .count = values.numel(),
                             .dropout = element_dropout(launch, dropout, output.device())},
                            launch.stream());
                });
}

void device_rotate(const at::Tensor& rows, int64_t num_turned, const RotaryTable& table,
                   const at::Tensor& positions, float sign) {
  launch_kernel("rotary", rows.device(), {rows, rows}, [&](const KernelLaunch& launch) {
    rotate_rows(launch.write(rows), dtype_of(rows), rows.size(0) * rows.size(1), rows.size(-1),
                num_turned, rotary_rows(launch, &table, positions, rows.size(1), table.cos.size(1)),
                sign, launch.stream());
  });
}

void device_pack_heads(const at::Tensor& rows, const at::Tensor& query, const at::Tensor& key,
                       const at::Tensor& value, const RotaryTable* table,
                       const at::Tensor& positions) {
  launch_kernel(
      "rotary_backward", rows.device(), {rows, query, key, value}, [&](const KernelLaunch& launch) {
        const HeadSources sources{.query = launch.read(query),
                                  .key = launch.read(key),
                                  .value = launch.read(value),
                                  .num_heads = query.size(2),
                                  .num_kv_heads = key.size(2)};
        pack_and_turn_back(launch.write(rows), dtype_of(rows), query.size(0) * query.size(1),
                           sources,
                           rotary_rows(launch, table, positions, query.size(1), query.size(3) / 2),
                           launch.stream());
      });
}

void device_entropy(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& labels,
                    int64_t ignore_index, double smoothing, bool wants_gradient) {
  launch_kernel("cross_entropy", logits.device(), {logits, logits},
                [&](const KernelLaunch& launch) {
                  entropy_rows({.dtype = dtype_of(logits),
                                .logits = launch.write(logits),
                                .losses = launch.write_as<float>(losses),
                                .labels = launch.read_as<int64_t>(labels),
                                .num_rows = logits.size(0),
                                .vocabulary = logits.size(1),
                                .row_stride = logits.stride(0),
                                .ignore_index = ignore_index,
                                .smoothing = static_cast<float>(smoothing),
                                .wants_gradient = wants_gradient},
                               launch.stream());
                });
}

void device_widen_rows(const at::Tensor& output, const at::Tensor& values,
                       const at::Tensor& scales) {
  launch_kernel("widen_rows", output.device(), {output, values}, [&](const KernelLaunch& launch) {
    widen_rows({.dtype = dtype_of(output),
                .num_rows = values.size(0),
                .width = values.size(1),
                .output = launch.write(output),
                .values = launch.read_as<int8_t>(values),
                .scales = launch.read_as<float>(scales)},
               launch.stream());
  });
}

void device_add_rows(const at::Tensor& table, const at::Tensor& indices, const at::Tensor& rows,
                     int64_t skipped) {
  const auto [sorted, order] = indices.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const int64_t num_rows = rows.size(0), width = rows.size(1);
  const auto partials = make_partials(rows, 2 * num_segment_chunks(num_rows), width);
  launch_kernel("add_rows", rows.device(), {rows, rows, rows}, [&](const KernelLaunch& launch) {
    add_segments({.dtype = dtype_of(rows),
                  .table = launch.write_as<float>(table),
                  .rows = launch.read(rows),
                  .sorted = launch.read_as<int64_t>(sorted),
                  .order = launch.read_as<int64_t>(order),
                  .num_rows = num_rows,
                  .width = width,
                  .skipped = skipped,
                  .partials = launch.write_as<float>(partials)},
                 launch.stream());
  });
}

}  // namespace fullshard::ops
