// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor_io/write_tensor.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>

#include "fullshard/base/bytes.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::tensor_io {
namespace {

constexpr int64_t kBlockBytes = kMiB;

// Row-major pieces of at most a block, one after the other. Only the piece is copied, so that a
// transposed tensor does not exist twice.
void for_each_piece(const at::Tensor& values, const std::function<void(const at::Tensor&)>& use) {
  const auto bytes = static_cast<int64_t>(values.nbytes());
  if (values.is_contiguous() || bytes <= kBlockBytes || values.dim() == 0) {
    use(values.contiguous().view(-1));
    return;
  }
  const int64_t rows = values.size(0);
  const int64_t most = std::max<int64_t>(kBlockBytes / (bytes / rows), 1);
  for (int64_t row = 0; row < rows; row += most) {
    if (most == 1) {
      for_each_piece(values.select(0, row), use);
    } else {
      for_each_piece(values.narrow(0, row, std::min(most, rows - row)), use);
    }
  }
}

}  // namespace

void write_tensor(SafetensorsWriter& writer, const std::string& name, const at::Tensor& values) {
  const auto& planned = writer.planned(name).shape;
  formats::check_input(values.sizes() == at::IntArrayRef(planned),
                       "{}: tensor '{}' has shape {}, expected {}", writer.path(), name,
                       format_shape(values.sizes()), format_shape(planned));
  write_tensor_range(writer, name, 0, values);
}

void write_tensor_range(SafetensorsWriter& writer, const std::string& name, int64_t begin,
                        const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  formats::check_input(values.is_cpu(), "{}: tensor '{}' is not in CPU memory", writer.path(),
                       name);
  if (values.numel() == 0) return writer.write_range(name, begin, ElementSpan());
  for_each_piece(values.detach(), [&](const at::Tensor& piece) {
    writer.write_range(name, begin, piece);
    begin += piece.numel();
  });
}

}  // namespace fullshard::tensor_io
