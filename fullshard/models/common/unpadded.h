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
  ops::SharedPackedDocuments documents;   // the rows, in one; then the filler, if any
};
using SharedUnpadded = std::shared_ptr<const Unpadded>;

// Rows of `num_columns` of which so many tokens are real, at the beginning of each; else an Error
// (kind input). None where lengths are empty or it is not worth it. `together`: some padding stays,
// as filler behind the rows, so that the number of tokens is a multiple of it (or all there are),
// and that of documents one more than that of rows; 1: none. Batches of few sizes find their memory
// and kernels again, and may be CUDA graphs.
SharedUnpadded make_unpadded(const std::vector<int64_t>& lengths, int64_t num_columns,
                             at::Device device, int64_t together = 1);

// Whether at least an eighth is saved; to move tokens costs something too.
bool is_worth_unpadding(const std::vector<int64_t>& lengths, int64_t num_columns,
                        int64_t together = 1);

// That it is one of `tokens` [batch, columns]; else an Error (kind input) with `name` in it.
void check_fits(const char* name, const SharedUnpadded& layout, const at::Tensor& tokens);

// With memory of its own; and everything on the device that it consists of.
SharedUnpadded clone_of(const SharedUnpadded& layout);
std::vector<at::Tensor> tensors_in(const SharedUnpadded& layout);

// [batch, columns, ...] as [1, tokens, ...], and the contrary, with zeros where no token comes
// from. Without a layout both give what they are given.
at::Tensor without_padding(const at::Tensor& padded, const SharedUnpadded& layout);
at::Tensor with_padding(const at::Tensor& tokens, const SharedUnpadded& layout);
ops::Projected with_padding(ops::Projected tokens, const SharedUnpadded& layout);

}  // namespace fullshard::models
