// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/outer.h>
#include <torch/csrc/autograd/custom_function.h>

#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/kernels/rotary_kernels.h"
#include "fullshard/tensor/parallel.h"

namespace fullshard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor rotate_on_device(const at::Tensor& given, const RotaryTable& table,
                            const at::Tensor& positions, float sign) {
  auto output = given.clone(at::MemoryFormat::Contiguous);
  ops::device_rotate(output.flatten(2), output.size(2), table, positions, sign);
  return output;
}

// `positions` [batch, sequence] or empty: position s is row s.
at::Tensor rotate(const at::Tensor& given, const RotaryTable& table, const at::Tensor& positions,
                  float sign) {
  if (given.is_cuda()) return rotate_on_device(given, table, positions, sign);
  const auto input = given.stride(-1) == 1 ? given : given.contiguous();
  const int64_t sequence = input.size(1), num_heads = input.size(2), half = input.size(3) / 2;
  auto output = at::empty(input.sizes(), input.options());
  const int64_t* rows = positions.numel() > 0 ? ops::elements<int64_t>(positions) : nullptr;
  const float* cosines = ops::elements<float>(table.cos);
  const float* sines = ops::elements<float>(table.sin);
  const auto strides = input.strides();
  ops::with_stored_type(input, [&]<class Stored>(Stored*) {
    const auto* from = ops::elements<Stored>(input);
    auto* to = ops::mutable_elements<Stored>(output);
    const int64_t width = num_heads * 2 * half;
    const auto turn = [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        const int64_t item = token / sequence, place = token % sequence;
        const int64_t row = (rows != nullptr ? rows[token] : place) * half;
        ops::rotate_heads(to + token * width, from + item * strides[0] + place * strides[1],
                          strides[2], cosines + row, sines + row, num_heads, half, sign);
      }
    };
    tensor::parallel_ranges(input.size(0) * sequence, ops::rows_per_thread(width), turn);
  });
  return output;
}

struct RotaryFunction : torch::autograd::Function<RotaryFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& cosines, const at::Tensor& sines,
                            const at::Tensor& positions) {
    context->save_for_backward({cosines, sines, positions});
    return rotate(input, {cosines, sines}, positions, 1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    ops::refuse_second_derivative("apply_rotary");
    const auto saved = context->get_saved_variables();
    return {rotate(gradients[0], {saved[0], saved[1]}, saved[2], -1), {}, {}, {}};
  }
};

at::Tensor composed_rotary(const at::Tensor& input, const RotaryTable& table,
                           const at::Tensor& positions) {
  const auto rows_of = [&](const at::Tensor& values) {
    const auto rows =
        positions.numel() > 0 ? values.index({positions}) : values.narrow(0, 0, input.size(1));
    return rows.unsqueeze(-2);  // for the heads
  };
  const auto cosines = rows_of(table.cos), sines = rows_of(table.sin);
  const auto wide = input.scalar_type() == at::kDouble ? input : input.to(at::kFloat);
  const auto halves = wide.chunk(2, -1);
  const auto turned = at::cat(
      {halves[0] * cosines - halves[1] * sines, halves[1] * cosines + halves[0] * sines}, -1);
  return turned.to(input.scalar_type());
}

void check_rotary_shapes(const at::Tensor& input, const RotaryTable& table) {
  check(input.dim() == 4 && input.size(3) == 2 * table.cos.size(1),
        "apply_rotary: the input has {} dimensions, the last of {}; expected [batch, sequence, "
        "heads, {}], twice the width of the table",
        input.dim(), input.size(-1), 2 * table.cos.size(1));
}

// As [batch, sequence] of int64; empty for none.
at::Tensor checked_positions(const at::Tensor& input, const RotaryTable& table,
                             const at::Tensor& positions) {
  const int64_t num_rows = table.cos.size(0);
  if (!positions.defined()) {
    check(input.size(1) <= num_rows,
          "apply_rotary: a sequence of {} positions, but the table was made for {}; make a longer "
          "table",
          input.size(1), num_rows);
    return at::empty({0}, input.options().dtype(at::kLong));
  }
  check(positions.device() == input.device(),
        "apply_rotary: positions lie on {}, the input on {}; move the positions there first",
        positions.device().str(), input.device().str());
  auto rows = positions.expand({input.size(0), input.size(1)}).to(at::kLong).contiguous();
  if (rows.is_cpu() && rows.numel() > 0) {
    const auto lowest = rows.min().item<int64_t>(), highest = rows.max().item<int64_t>();
    check(lowest >= 0 && highest < num_rows,
          "apply_rotary: positions from {} to {}, but the table has rows 0 to {}; make a longer "
          "table",
          lowest, highest, num_rows - 1);
  }
  return rows;
}

}  // namespace

RotaryTable make_rotary_table(const at::Tensor& frequencies, int64_t num_positions, double factor) {
  const auto places = at::arange(num_positions, frequencies.options().dtype(at::kFloat));
  const auto angles = at::outer(places, frequencies.to(at::kFloat));
  if (factor == 1.0) return {angles.cos(), angles.sin()};
  return {angles.cos() * factor, angles.sin() * factor};
}

at::Tensor apply_rotary(const at::Tensor& input, const RotaryTable& table,
                        const at::Tensor& positions) {
  check_rotary_shapes(input, table);
  const auto rows = checked_positions(input, table, positions);
  const bool is_plain_table = table.cos.scalar_type() == at::kFloat &&
                              table.sin.scalar_type() == at::kFloat && table.cos.is_contiguous() &&
                              table.sin.is_contiguous();
  const bool has_kernel =
      (ops::has_cpu_kernel(input) && ops::has_cpu_kernel({table.cos, table.sin})) ||
      (ops::has_cuda_kernel(input) && input.numel() > 0 &&
       ops::has_cuda_kernel({table.cos, table.sin}));
  if (!has_kernel || !is_plain_table) return composed_rotary(input, table, rows);
  return RotaryFunction::apply(input, table.cos, table.sin, rows);
}

}  // namespace fullshard
