// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/attention/packed_documents.h"

#include <ATen/ops/empty.h>

#include <numeric>

#include "fullshard/base/error.h"

namespace fullshard::ops {

SharedPackedDocuments make_packed_documents(const std::vector<std::vector<int64_t>>& lengths,
                                            at::Device device) {
  check(!lengths.empty(), "packed documents: there is no row");
  const auto num_columns = std::reduce(lengths[0].begin(), lengths[0].end());
  auto packed = std::make_shared<PackedDocuments>();
  // Out of pinned memory the copy to a device is not waited for.
  const auto positions = at::empty({static_cast<int64_t>(lengths.size()), num_columns},
                                   at::TensorOptions(at::kLong).pinned_memory(device.is_cuda()));
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
    }
  }
  packed->positions = positions.to(device, /*non_blocking=*/true);
  return packed;
}

}  // namespace fullshard::ops
