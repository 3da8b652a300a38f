// SPDX-License-Identifier: Apache-2.0
// Attention of new tokens to the keys and values that earlier passes left behind.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "fullshard/ops/attention/self_attention.h"
#include "fullshard/ops/products/projected.h"

namespace fullshard::ops {

// Where the tokens of one pass stand in their rows: token i of row r is number starts[r] + i of its
// sequence, and keys lie in the column of their number. More than one token at a time only where
// all rows start alike.
struct CachePlaces {
  std::vector<int64_t> starts{};
  int64_t count = 1;       // tokens of each row in this pass
  at::Tensor positions{};  // [rows, count], the numbers, on the device

  int64_t num_rows() const { return static_cast<int64_t>(starts.size()); }
  int64_t num_columns() const;  // filled after this pass, in the longest row
  bool start_alike() const;
};

// `positions` where they are on the device already.
CachePlaces make_places(std::vector<int64_t> starts, int64_t count, at::Device device,
                        const at::Tensor& positions = {});

// Writes new keys or values [rows, count, heads, D] into columns of `cache` [rows, heads, capacity,
// D].
void store_in_cache(const at::Tensor& cache, const at::Tensor& tokens, const CachePlaces& places);

struct CachedAttentionOptions {
  int64_t window = 0;                // only that many last keys; 0: all
  std::optional<double> scale = {};  // absent: 1/sqrt(D)
  at::Tensor bias = {};              // [1, heads, count, columns], added to the scores
};

// query [rows, count, heads, D] over keys and values [rows, kv_heads, capacity, D], which hold the
// pass's own already: each token sees its row up to itself. The result is [rows, count, heads * D].
// No gradients. Columns that were never stored may hold anything in fp32 on CPUs, and finite
// numbers elsewhere.
at::Tensor cached_attention(const at::Tensor& query, const at::Tensor& keys,
                            const at::Tensor& values, const CachePlaces& places,
                            const CachedAttentionOptions& options);

// The same for one new token per row, with what comes before it: rows of query | key | value as
// norm_projection packs them; the new keys, turned by `rotary` unless that is null, and values are
// stored. Where a GPU has it in one kernel, that reads the places on the device; the result is
// undefined, and nothing is done, where it has not.
at::Tensor step_attention(const Projected& rows, const SelfAttentionHeads& heads,
                          const RotaryTable* rotary, const at::Tensor& keys,
                          const at::Tensor& values, const CachePlaces& places,
                          const CachedAttentionOptions& options);

// The same for keys that are complete: every token of row r sees the first lengths[r].
at::Tensor complete_attention(const at::Tensor& query, const at::Tensor& keys,
                              const at::Tensor& values, const std::vector<int64_t>& lengths,
                              const CachedAttentionOptions& options);

}  // namespace fullshard::ops
