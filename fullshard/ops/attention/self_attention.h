// SPDX-License-Identifier: Apache-2.0
// Attention of a sequence to itself, from projected rows to mixed values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "fullshard/ops/attention/attention.h"
#include "fullshard/ops/products/projected.h"
#include "fullshard/ops/rotary.h"

namespace fullshard::ops {

struct SelfAttentionHeads {
  int64_t num_heads = 1;
  int64_t num_kv_heads = 1;  // a divisor of num_heads
};

struct QueryKeyValue {
  at::Tensor query, key, value;  // [batch, sequence, heads, D]
};

// Of projected rows, as self_attention() reads them.
QueryKeyValue split_heads(const Projected& input, const SelfAttentionHeads& heads);

// attention(rotary(query), rotary(key), value) of query | key | value, each [batch, sequence, heads
// * D], in one tensor or in three; [batch, sequence, num_heads * D]. Without a rotary table nothing
// is turned; `positions` are apply_rotary's, of packed documents by default theirs. On the CPU
// these are those operators.
//
// On a GPU 16-bit rows are turned in place: a packed tensor belongs to this call, and nobody may
// read it afterwards (autograd refuses a backward that would). A leaf is copied first. cuDNN's
// attention runs where it can, else flash attention, which is also what deterministic algorithms
// take; packed documents are flash attention's, all in one launch. Masks, windows, biases and
// dropout are left to the composition.
at::Tensor self_attention(const Projected& input, const SelfAttentionHeads& heads,
                          const RotaryTable* rotary, const AttentionOptions& options,
                          const at::Tensor& positions = {});

}  // namespace fullshard::ops
