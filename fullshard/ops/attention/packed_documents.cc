// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/attention/packed_documents.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "fullshard/base/error.h"

namespace fullshard::ops {
namespace {

// Out of pinned memory the copy to a device is not waited for.
at::Tensor for_copying(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  return at::empty(sizes, at::TensorOptions(dtype).pinned_memory(device.is_cuda()));
}

at::Tensor make_starts(const std::vector<int64_t>& lengths, at::Device device) {
  const auto starts = for_copying({static_cast<int64_t>(lengths.size()) + 1}, at::kInt, device);
  auto* start = starts.mutable_data_ptr<int32_t>();
  int64_t sum = 0;
  *start = 0;
  for (const int64_t length : lengths) {
    sum += length;
    check(sum <= std::numeric_limits<int32_t>::max(),
          "packed documents: more than {} tokens in a batch; take a smaller micro-batch",
          std::numeric_limits<int32_t>::max());
    *++start = static_cast<int32_t>(sum);
  }
  return starts.to(device, /*non_blocking=*/true);
}

}  // namespace

SharedPackedDocuments make_packed_documents(const std::vector<std::vector<int64_t>>& lengths,
                                            at::Device device) {
  check(!lengths.empty(), "packed documents: there is no row");
  const auto num_columns = std::reduce(lengths[0].begin(), lengths[0].end());
  auto packed = std::make_shared<PackedDocuments>();
  const auto positions =
      for_copying({static_cast<int64_t>(lengths.size()), num_columns}, at::kLong, device);
  auto* place = positions.mutable_data_ptr<int64_t>();
  for (const auto& row : lengths) {
    check(
        std::reduce(row.begin(), row.end()) == num_columns,
        "packed documents: documents of {} tokens in one row and of {} in another; pad them to one "
        "length",
        num_columns, std::reduce(row.begin(), row.end()));
    for (const int64_t length : row) {
      check(length > 0, "packed documents: a document of {} tokens", length);
      std::iota(place, place + length, int64_t{0});
      place += length;
      packed->lengths.push_back(length);
      packed->longest = std::max(packed->longest, length);
    }
  }
  packed->positions = positions.to(device, /*non_blocking=*/true);
  packed->starts = make_starts(packed->lengths, device);
  return packed;
}

void check_fills(const PackedDocuments& documents, int64_t num_rows, int64_t num_queries,
                 int64_t num_keys) {
  const auto total = std::reduce(documents.lengths.begin(), documents.lengths.end());
  check(num_queries == num_keys && total == num_rows * num_queries,
        "attention: {} rows of {} queries and {} keys with packed documents of {} tokens; expected "
        "as many of each",
        num_rows, num_queries, num_keys, total);
}

}  // namespace fullshard::ops
