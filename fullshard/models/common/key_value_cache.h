// SPDX-License-Identifier: Apache-2.0
// Keys and values of the tokens that a model has seen, so that the next token costs one token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fullshard/ops/cached_attention.h"
#include "fullshard/ops/rotary.h"

namespace fullshard::models {

// Of one attention: [rows, kv_heads, capacity, D] each, in the dtype that the model computes in. A
// row begins in column 0 whatever the others hold, so unequal prompts need no padding before them.
struct CachedLayer {
  at::Tensor keys{};
  at::Tensor values{};
};

// Rows are sequences. Memory for `capacity` tokens of each is taken when a layer first stores
// something, and nothing is moved when rows grow. A layer belongs to the attention of that number.
class KeyValueCache {
 public:
  KeyValueCache(int64_t num_rows, int64_t capacity);

  int64_t num_rows() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }  // tokens that each row holds
  int64_t bytes() const;

  // The next `count` tokens of every row; an Error where they do not fit.
  ops::CachePlaces next_places(int64_t count, at::Device device) const;
  void advance(int64_t count);
  // A padded prompt: what lies behind is as if it had never been stored.
  void set_lengths(std::vector<int64_t> lengths);

  // Stores [rows, count, kv_heads, D] and gives the layer.
  const CachedLayer& store(size_t layer, const at::Tensor& keys, const at::Tensor& values,
                           const ops::CachePlaces& places);

  // Encoder-decoder models: keys and values of the source, made once. `lengths` are those of the
  // sources, whose rows are padded behind.
  void set_source_lengths(std::vector<int64_t> lengths) { source_lengths_ = std::move(lengths); }
  const std::vector<int64_t>& source_lengths() const { return source_lengths_; }
  void set_cross(size_t layer, const at::Tensor& keys, const at::Tensor& values);
  const CachedLayer& cross(size_t layer) const { return cross_.at(layer); }

  // Row i goes on from what was row rows[i]; there may be more or fewer of them than before.
  void select_rows(const std::vector<int64_t>& rows);

 private:
  int64_t capacity_;
  std::vector<int64_t> lengths_;
  std::vector<int64_t> source_lengths_;
  std::vector<CachedLayer> layers_;
  std::vector<CachedLayer> cross_;
};

// One call of a model's forward over a cache: its tokens follow what the cache holds.
struct CachedPass {
  explicit CachedPass(KeyValueCache& given) : cache(&given) {}

  KeyValueCache* cache;
  // Which tokens get logits, as places in [rows * count]; undefined: the last of every row.
  at::Tensor wanted{};

  // The model's own, while the call lasts.
  ops::CachePlaces places{};
  size_t layer = 0;  // the one at work
  std::shared_ptr<const RotaryTable> rotary{};
  at::Tensor position_bias{};  // T5
  at::Tensor encoded{};        // T5, in the pass that makes the keys of the source
};

// hidden [rows, count, width] at the wanted places: [n, width].
at::Tensor wanted_rows(const at::Tensor& hidden, const CachedPass& pass);

}  // namespace fullshard::models
