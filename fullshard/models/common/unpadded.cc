// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/unpadded.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "fullshard/base/error.h"

namespace fullshard::models {
namespace {

// Out of pinned memory the copy to a device is not waited for.
at::Tensor make_places(const std::vector<int64_t>& lengths, int64_t num_tokens, int64_t num_columns,
                       at::Device device) {
  const auto places =
      at::empty({num_tokens}, at::TensorOptions(at::kLong).pinned_memory(device.is_cuda()));
  auto* place = places.mutable_data_ptr<int64_t>();
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    std::iota(place, place + length, begin);
    place += length;
    begin += num_columns;
  }
  return places.to(device, /*non_blocking=*/true);
}

}  // namespace

SharedUnpadded make_unpadded(const char* name, const std::vector<int64_t>& lengths,
                             const at::Tensor& tokens) {
  if (lengths.empty()) return nullptr;
  const int64_t num_rows = tokens.size(0), num_columns = tokens.size(1);
  const auto [least, most] = std::ranges::minmax(lengths);
  if (std::ssize(lengths) != num_rows || least < 1 || most > num_columns) {
    fail_as(ErrorKind::input,
            "{}: {} lengths from {} to {}; expected one from 1 to {} for each of {} rows", name,
            lengths.size(), least, most, num_columns, num_rows);
  }
  const int64_t num_tokens = std::reduce(lengths.begin(), lengths.end());
  if (8 * num_tokens > 7 * num_rows * num_columns) return nullptr;
  auto layout = std::make_shared<Unpadded>();
  layout->num_rows = num_rows;
  layout->num_columns = num_columns;
  layout->places = make_places(lengths, num_tokens, num_columns, tokens.device());
  layout->documents = ops::make_packed_documents({lengths}, tokens.device());
  return layout;
}

at::Tensor without_padding(const at::Tensor& padded, const SharedUnpadded& layout) {
  if (layout == nullptr || !padded.defined()) return padded;
  return padded.flatten(0, 1).index_select(0, layout->places).unsqueeze(0);
}

at::Tensor with_padding(const at::Tensor& tokens, const SharedUnpadded& layout) {
  if (layout == nullptr || !tokens.defined()) return tokens;
  const auto rows = tokens.flatten(0, 1);
  auto sizes = rows.sizes().vec();
  sizes[0] = layout->num_rows * layout->num_columns;
  return at::zeros(sizes, rows.options())
      .index_copy_(0, layout->places, rows)
      .unflatten(0, {layout->num_rows, layout->num_columns});
}

ops::Projected with_padding(ops::Projected tokens, const SharedUnpadded& layout) {
  tokens.packed = with_padding(tokens.packed, layout);
  for (auto& part : tokens.parts) part = with_padding(part, layout);
  return tokens;
}

}  // namespace fullshard::models
