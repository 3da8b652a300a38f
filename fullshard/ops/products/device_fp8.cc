// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/device_fp8.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/nn/product_precision.h"
#include "fullshard/ops/alignment.h"
#include "fullshard/ops/cuda/fp8_rows.h"
#include "fullshard/ops/cuda/largest_parts.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/products/fp8_product.h"
#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::ops {
namespace {

using tensor::KernelLaunch;
using tensor::launch_kernel;

constexpr int64_t kGranule = 16;  // elements that tensor cores want side by side

int64_t granules_of(int64_t count) { return (count + kGranule - 1) / kGranule * kGranule; }

// One is enough: the next operator's backward follows at once.
struct Noted {
  c10::weak_intrusive_ptr<c10::TensorImpl> gradient{
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
  int64_t version = 0;
  at::Tensor largest{};
};
thread_local Noted last_noted;

at::ScalarType fp8_dtype(Fp8Format format) {
  return format == Fp8Format::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
}

at::Tensor make_factor(const at::Tensor& like) {
  return at::empty({1}, like.options().dtype(at::kFloat));
}

at::Tensor make_fp8(const at::Tensor& like, int64_t rows, int64_t inner, Fp8Format format) {
  return at::empty({rows, inner}, like.options().dtype(fp8_dtype(format)));
}

// Either target may have no values; the factor is of whichever has some.
void to_fp8(const Fp8Operand& rows, const Fp8Operand& turned, const at::Tensor& given,
            const at::Tensor& largest, Fp8Format format) {
  const auto matrix = in_packs(given);
  launch_kernel("to_fp8", matrix.device(), {matrix, rows.values, turned.values},
                [&](const KernelLaunch& launch) {
                  Fp8Targets targets{.rows = launch.write(rows.values),
                                     .turned = launch.write(turned.values),
                                     .factor = launch.write_as<float>(
                                         rows.factor.defined() ? rows.factor : turned.factor)};
                  if (turned.values.defined()) {
                    targets.turned_stride = turned.values.stride(0);
                    targets.turned_length = turned.values.size(1);
                  }
                  to_fp8_rows(targets,
                              {.values = launch.read(matrix),
                               .num_rows = matrix.size(0),
                               .width = matrix.size(1),
                               .parts = launch.read_as<float>(largest),
                               .kind = format == Fp8Format::e4m3 ? Fp8Kind::e4m3 : Fp8Kind::e5m2},
                              launch.stream());
                });
}

int64_t joined_height(at::TensorList weights) {
  int64_t total = 0;
  for (const auto& weight : weights) total += weight.size(0);
  return total;
}

}  // namespace

bool computes_in_fp8(const at::Tensor& rows, at::TensorList weights) {
  if (nn::product_precision() == ProductPrecision::operands) return false;
  if (!has_cuda_kernel(rows) || rows.scalar_type() != at::kBFloat16) return false;
  return std::all_of(weights.begin(), weights.end(), [](const at::Tensor& weight) {
    return weight.dim() == 2 && weight.is_contiguous() && weight.size(0) % kGranule == 0 &&
           weight.size(1) % kGranule == 0;
  });
}

at::Tensor make_largest(const at::Tensor& like) {
  return at::empty({kLargestParts}, like.options().dtype(at::kFloat));
}

void note_largest(const at::Tensor& gradient, const at::Tensor& largest) {
  last_noted.gradient = c10::weak_intrusive_ptr<c10::TensorImpl>(gradient.getIntrusivePtr());
  last_noted.version = gradient._version();
  last_noted.largest = largest;
}

at::Tensor noted_largest(const at::Tensor& gradient) {
  auto noted = std::move(last_noted);
  last_noted = Noted();
  const bool is_same = noted.largest.defined() &&
                       noted.gradient.lock().get() == gradient.unsafeGetTensorImpl() &&
                       noted.version == static_cast<int64_t>(gradient._version());
  return is_same ? noted.largest : at::Tensor();
}

at::Tensor device_largest(at::TensorList matrices) {
  check(!matrices.empty(), "device_largest: no matrix");
  auto parts = make_largest(matrices.front());
  bool joins = false;
  for (const auto& given : matrices) {
    const auto matrix = in_packs(given);
    launch_kernel("largest", matrix.device(), {matrix}, [&](const KernelLaunch& launch) {
      largest_values(launch.write_as<float>(parts), joins, launch.read(matrix), matrix.numel(),
                     launch.stream());
    });
    joins = true;
  }
  return parts;
}

Fp8Operand device_fp8_rows(const at::Tensor& matrix, const at::Tensor& largest, Fp8Format format) {
  const Fp8Operand made{make_fp8(matrix, matrix.size(0), matrix.size(1), format),
                        make_factor(matrix)};
  to_fp8(made, {}, matrix, largest, format);
  return made;
}

Fp8Operand device_fp8_turned(const at::Tensor& matrix, const at::Tensor& largest,
                             Fp8Format format) {
  const Fp8Operand made{make_fp8(matrix, matrix.size(1), granules_of(matrix.size(0)), format),
                        make_factor(matrix)};
  to_fp8({}, made, matrix, largest, format);
  return made;
}

Fp8Both device_fp8_both(const at::Tensor& matrix, const at::Tensor& largest, Fp8Format format) {
  const auto factor = make_factor(matrix);
  Fp8Both made{{make_fp8(matrix, matrix.size(0), matrix.size(1), format), factor},
               {make_fp8(matrix, matrix.size(1), granules_of(matrix.size(0)), format), factor}};
  to_fp8(made.rows, made.turned, matrix, largest, format);
  return made;
}

Fp8Operand device_fp8_joined_rows(at::TensorList weights, const at::Tensor& largest) {
  const auto& first = weights.front();
  const Fp8Operand joined{make_fp8(first, joined_height(weights), first.size(1), Fp8Format::e4m3),
                          make_factor(first)};
  int64_t row = 0;
  for (const auto& weight : weights) {
    to_fp8(joined.narrow(row, weight.size(0)), {}, weight, largest, Fp8Format::e4m3);
    row += weight.size(0);
  }
  return joined;
}

Fp8Operand device_fp8_joined_turned(at::TensorList weights, const at::Tensor& largest) {
  const auto& first = weights.front();
  const Fp8Operand joined{make_fp8(first, first.size(1), joined_height(weights), Fp8Format::e4m3),
                          make_factor(first)};
  int64_t column = 0;
  for (const auto& weight : weights) {
    const Fp8Operand own{joined.values.narrow(1, column, weight.size(0)), joined.factor};
    to_fp8({}, own, weight, largest, Fp8Format::e4m3);
    column += weight.size(0);
  }
  return joined;
}

void device_fp8_product(const at::Tensor& output, const Fp8Operand& left, const Fp8Operand& right,
                        const Fp8ProductTerms& terms) {
  check(left.values.size(1) == right.values.size(1) && output.size(0) == left.values.size(0) &&
            output.size(1) == right.values.size(0) && output.stride(1) == 1,
        "device_fp8_product: [{}, {}] * [{}, {}]^T into [{}, {}]; the shapes do not fit",
        left.values.size(0), left.values.size(1), right.values.size(0), right.values.size(1),
        output.size(0), output.size(1));
  if (tensor::is_pretended()) {
    return tensor::note_product(output, left.values, right.values.t());
  }
  launch_kernel("fp8_product", output.device(), int64_t{0}, [&](const KernelLaunch& launch) {
    multiply_fp8(launch, output, left, right, terms);
  });
}

}  // namespace fullshard::ops
