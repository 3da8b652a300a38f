// SPDX-License-Identifier: Apache-2.0
// Several documents side by side in each row of a batch, of which every one is for itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace fullshard::ops {

// Lengths are on the host, so that nothing waits for a device to know where documents end.
struct PackedDocuments {
  std::vector<int64_t> lengths;  // of all documents, row after row; none crosses the end of a row
  int64_t longest = 0;           // none is longer
  at::Tensor positions;          // [batch, sequence], int64: from 0 in every document
  at::Tensor starts;  // [documents + 1], int32: where each begins, rows side by side; and the end

  // Every row is one document: as if nothing were packed.
  bool are_rows() const { return static_cast<int64_t>(lengths.size()) == positions.size(0); }
};
using SharedPackedDocuments = std::shared_ptr<const PackedDocuments>;

// `lengths` of each row's documents, all positive, with the same sum; else an Error.
SharedPackedDocuments make_packed_documents(const std::vector<std::vector<int64_t>>& lengths,
                                            at::Device device);

// That `documents` fill so many rows of attention; else an Error.
void check_fills(const PackedDocuments& documents, int64_t num_rows, int64_t num_queries,
                 int64_t num_keys);

}  // namespace fullshard::ops
