// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "fullshard/ops/attention/packed_documents.h"

namespace fullshard {

struct AttentionOptions {
  bool causal = false;               // query s sees keys up to s + (num_keys - num_queries)
  int64_t window = 0;                // with causal: only that many last keys; 0: all
  std::optional<double> scale = {};  // absent: 1/sqrt(D)
  double dropout = 0;                // of the probabilities; the caller gives 0 in evaluation
  at::Tensor padding_mask = {};      // [batch, keys], non-zero where a key may be seen
  at::Tensor bias = {};  // added to the scores: broadcastable to [batch, heads, queries, keys]
  // Queries see keys of their own document only, as if each were a row; without masks and biases.
  ops::SharedPackedDocuments documents = {};
};

// query [batch, queries, heads, D], key and value [batch, keys, kv_heads, D] with kv_heads a
// divisor of heads (each serves heads / kv_heads neighbouring query heads); the result has the
// query's shape. A query that may see no key gets finite values, never NaN.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionOptions& options);

namespace ops {
// Whether attention() of packed documents in such rows [batch, sequence, heads, D] costs no more
// than their scores: on a CPU, or by one kernel for all of them.
bool attends_by_document(const at::Tensor& query);

// A bias of scores [batch or 1, heads, queries, keys] that hides what a padding mask hides: for
// layers that share both, which then need no mask of their own. Itself where nothing is hidden.
at::Tensor bias_hiding_keys(const at::Tensor& bias, const at::Tensor& padding_mask);
}  // namespace ops

}  // namespace fullshard
