// SPDX-License-Identifier: Apache-2.0
// A padded batch without its padding: real tokens side by side in one row, so that what is computed
// token by token is not computed for padding. Attention either takes the rows as documents or gets
// them back with their padding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fullshard/ops/attention/packed_documents.h"
#include "fullshard/ops/products/projected.h"

namespace fullshard::models {

struct Unpadded {
  int64_t num_rows = 0, num_columns = 0;  // with the padding
  at::Tensor places;                      // int64 [tokens]: of each one among rows * columns
  ops::SharedPackedDocuments documents;   // the rows, in one
};
using SharedUnpadded = std::shared_ptr<const Unpadded>;

// Of tokens [batch, columns] of which so many are real, at the beginning of each row; else an Error
// (kind input) with `name` in it. None where lengths are not known or less than an eighth is
// padding: then to move tokens costs more than it saves.
SharedUnpadded make_unpadded(const char* name, const std::vector<int64_t>& lengths,
                             const at::Tensor& tokens);

// [batch, columns, ...] as [1, tokens, ...], and the contrary, with zeros for padding. Without a
// layout both give what they are given.
at::Tensor without_padding(const at::Tensor& padded, const SharedUnpadded& layout);
at::Tensor with_padding(const at::Tensor& tokens, const SharedUnpadded& layout);
ops::Projected with_padding(ops::Projected tokens, const SharedUnpadded& layout);

}  // namespace fullshard::models
