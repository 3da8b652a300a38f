// SPDX-License-Identifier: Apache-2.0
// Keys and values of the tokens that a model has seen, so that the next token costs one token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fullshard/ops/decoding/cached_attention.h"
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
// Where layers lie is a matter of those who derive from it: this one leaves them where they come
// from.
class KeyValueCache {
 public:
  KeyValueCache(int64_t num_rows, int64_t capacity);
  virtual ~KeyValueCache() = default;
  KeyValueCache(const KeyValueCache&) = delete;
  KeyValueCache& operator=(const KeyValueCache&) = delete;

  int64_t num_rows() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }  // tokens that each row holds
  virtual int64_t bytes() const;

  // Rows [first, first + count) alone are there for passes, until all of them are again.
  void show_rows(int64_t first, int64_t count);
  void show_all_rows() { show_rows(0, num_rows()); }

  // The next `count` tokens of every row; an Error where they do not fit. `positions`: their
  // numbers on the device, where they are there already.
  ops::CachePlaces next_places(int64_t count, at::Device device,
                               const at::Tensor& positions = {}) const;
  void advance(int64_t count);
  // Nothing is held any more; the memory stays for what comes.
  void forget();
  // A padded prompt: what lies behind is as if it had never been stored.
  void set_lengths(const std::vector<int64_t>& lengths);

  // What was stored in it so far, where somebody else than store() may put what comes to those
  // places, and then says so by stored(). Undefined tensors: nothing was stored.
  virtual CachedLayer layer(size_t number, const ops::CachePlaces& places);
  virtual void stored(size_t, const ops::CachePlaces&) {}
  // Stores [rows, count, kv_heads, D] and gives the layer, as long as nothing else is stored.
  virtual CachedLayer store(size_t layer, const at::Tensor& keys, const at::Tensor& values,
                            const ops::CachePlaces& places);

  // Encoder-decoder models: keys and values of the sources, made once, with room for the longest of
  // them. `lengths` are those of the rows that are shown, which are padded behind.
  void set_source_capacity(int64_t capacity) { source_capacity_ = capacity; }
  void set_source_lengths(const std::vector<int64_t>& lengths);
  std::vector<int64_t> source_lengths() const;
  virtual void set_cross(size_t layer, const at::Tensor& keys, const at::Tensor& values);
  virtual CachedLayer cross(size_t layer) { return shown_of(cross_.at(layer)); }

  // Row i goes on from what was row rows[i]; there may be more or fewer of them than before.
  void select_rows(const std::vector<int64_t>& rows);

 protected:
  int64_t first_shown() const { return first_shown_; }
  int64_t num_shown() const { return num_shown_; }
  int64_t source_capacity() const { return source_capacity_; }
  // Of select_rows(), while lengths and rows are still those of before; `used`: columns that count.
  virtual void select_layers(const std::vector<int64_t>& rows, int64_t used);

 private:
  CachedLayer shown_of(const CachedLayer& layer) const;

  int64_t capacity_;
  int64_t source_capacity_ = 0;  // as long as the sources that come, unless told
  int64_t first_shown_ = 0, num_shown_;
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
  // The numbers of the tokens in their rows, int64 [rows, count], where they are on the device
  // already; undefined: they are brought there.
  at::Tensor positions{};

  // Encoder-decoder models whose ranks make passes together (generation/pass_vote.h): the source is
  // encoded and forgotten; a source of zeros stands in for one that is not encoded.
  bool drops_source = false;
  bool skips_encoder = false;

  // The model's own, while the call lasts.
  ops::CachePlaces places{};
  size_t layer = 0;  // the one at work
  std::shared_ptr<const RotaryTable> rotary{};
  at::Tensor position_bias{};  // T5
  at::Tensor encoded{};        // T5, in the pass that makes the keys of the source

  // Of layers that looked for their places on the device only. Where all of them do, the next pass
  // is the same kernels with other positions, and may be a graph.
  size_t num_on_device = 0;
};

// hidden [rows, count, width] at the wanted places: [n, width].
at::Tensor wanted_rows(const at::Tensor& hidden, const CachedPass& pass);

}  // namespace fullshard::models
