// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/key_value_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::models {
namespace {

at::Tensor index_of(const std::vector<int64_t>& rows, const at::Tensor& like) {
  return at::tensor(rows, at::TensorOptions().dtype(at::kLong)).to(like.device());
}

// The kernel of fp32 on CPUs looks at stored columns only. Elsewhere hidden ones take part with a
// probability of 0, which must not meet a NaN that lay in memory.
at::Tensor new_columns(const std::vector<int64_t>& sizes, const at::TensorOptions& options) {
  const bool looks_at_stored_only =
      options.device().is_cpu() && c10::typeMetaToScalarType(options.dtype()) == at::kFloat;
  return looks_at_stored_only ? at::empty(sizes, options) : at::zeros(sizes, options);
}

// Only the columns in use are copied.
at::Tensor with_rows(const at::Tensor& cache, const std::vector<int64_t>& rows, int64_t used) {
  if (!cache.defined()) return cache;
  auto sizes = cache.sizes().vec();
  sizes[0] = static_cast<int64_t>(rows.size());
  auto selected = new_columns(sizes, cache.options());
  selected.narrow(2, 0, used)
      .copy_(cache.narrow(2, 0, used).index_select(0, index_of(rows, cache)));
  return selected;
}

// In place, and of those rows only that change; the others behind them are let go of.
at::Tensor with_changed_rows(const at::Tensor& cache, const std::vector<int64_t>& rows,
                             int64_t used) {
  if (!cache.defined()) return cache;
  std::vector<int64_t> to, from;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row] == static_cast<int64_t>(row)) continue;
    to.push_back(static_cast<int64_t>(row));
    from.push_back(rows[row]);
  }
  if (!to.empty()) {
    const auto columns = cache.narrow(2, 0, used);
    const auto taken = columns.index_select(0, index_of(from, cache));
    for (size_t i = 0; i < to.size(); ++i) {
      columns.select(0, to[i]).copy_(taken.select(0, static_cast<int64_t>(i)));
    }
  }
  return cache.narrow(0, 0, static_cast<int64_t>(rows.size()));
}

void select_layer_rows(CachedLayer& layer, const std::vector<int64_t>& rows, int64_t num_before,
                       int64_t used) {
  const bool is_more = static_cast<int64_t>(rows.size()) > num_before;
  const auto select = is_more ? with_rows : with_changed_rows;
  layer.keys = select(layer.keys, rows, used);
  layer.values = select(layer.values, rows, used);
}

std::vector<int64_t> lengths_of(const std::vector<int64_t>& lengths,
                                const std::vector<int64_t>& rows) {
  std::vector<int64_t> selected;
  if (lengths.empty()) return selected;
  for (const int64_t row : rows) selected.push_back(lengths[row]);
  return selected;
}

int64_t bytes_of(const std::vector<CachedLayer>& layers) {
  int64_t total = 0;
  for (const CachedLayer& layer : layers) {
    if (layer.keys.defined()) total += static_cast<int64_t>(layer.keys.nbytes());
    if (layer.values.defined()) total += static_cast<int64_t>(layer.values.nbytes());
  }
  return total;
}

}  // namespace

KeyValueCache::KeyValueCache(int64_t num_rows, int64_t capacity)
    : capacity_(capacity), num_shown_(num_rows), lengths_(static_cast<size_t>(num_rows), 0) {
  check(num_rows > 0 && capacity > 0,
        "key-value cache: {} rows of {} tokens; expected at least one", num_rows, capacity);
}

int64_t KeyValueCache::bytes() const { return bytes_of(layers_) + bytes_of(cross_); }

void KeyValueCache::show_rows(int64_t first, int64_t count) {
  check(first >= 0 && count > 0 && first + count <= num_rows(),
        "key-value cache: rows {} to {} of {} are asked for", first, first + count, num_rows());
  first_shown_ = first;
  num_shown_ = count;
}

CachedLayer KeyValueCache::shown_of(const CachedLayer& layer) const {
  if (num_shown_ == num_rows()) return layer;
  return {layer.keys.narrow(0, first_shown_, num_shown_),
          layer.values.narrow(0, first_shown_, num_shown_)};
}

ops::CachePlaces KeyValueCache::next_places(int64_t count, at::Device device,
                                            const at::Tensor& positions) const {
  const auto first = lengths_.begin() + first_shown_;
  auto places = ops::make_places({first, first + num_shown_}, count, device, positions);
  check(places.num_columns() <= capacity_,
        "key-value cache: {} tokens in a row, but it was made for {}; make a larger one",
        places.num_columns(), capacity_);
  return places;
}

void KeyValueCache::advance(int64_t count) {
  for (int64_t row = 0; row < num_shown_; ++row) lengths_[first_shown_ + row] += count;
}

void KeyValueCache::forget() { std::ranges::fill(lengths_, 0); }

void KeyValueCache::set_lengths(const std::vector<int64_t>& lengths) {
  check(static_cast<int64_t>(lengths.size()) == num_shown_,
        "key-value cache: {} lengths for {} rows", lengths.size(), num_shown_);
  for (size_t row = 0; row < lengths.size(); ++row) {
    int64_t& held = lengths_[static_cast<size_t>(first_shown_) + row];
    check(lengths[row] >= 0 && lengths[row] <= held,
          "key-value cache: row {} holds {} tokens, so {} cannot be kept", row, held, lengths[row]);
    held = lengths[row];
  }
}

CachedLayer KeyValueCache::layer(size_t number, const ops::CachePlaces&) {
  if (layers_.size() <= number || !layers_[number].keys.defined()) return {};
  return shown_of(layers_[number]);
}

CachedLayer KeyValueCache::store(size_t number, const at::Tensor& keys, const at::Tensor& values,
                                 const ops::CachePlaces& places) {
  if (layers_.size() <= number) layers_.resize(number + 1);
  CachedLayer& layer = layers_[number];
  if (!layer.keys.defined()) {
    const std::vector<int64_t> sizes = {num_rows(), keys.size(2), capacity_, keys.size(3)};
    layer.keys = new_columns(sizes, keys.options());
    layer.values = new_columns(sizes, values.options());
  }
  CachedLayer shown = shown_of(layer);
  ops::store_in_cache(shown.keys, keys, places);
  ops::store_in_cache(shown.values, values, places);
  return shown;
}

void KeyValueCache::set_source_lengths(const std::vector<int64_t>& lengths) {
  source_lengths_.resize(lengths_.size());
  std::ranges::copy(lengths, source_lengths_.begin() + first_shown_);
}

std::vector<int64_t> KeyValueCache::source_lengths() const {
  const auto first = source_lengths_.begin() + first_shown_;
  return {first, first + num_shown_};
}

void KeyValueCache::set_cross(size_t number, const at::Tensor& keys, const at::Tensor& values) {
  if (cross_.size() <= number) cross_.resize(number + 1);
  CachedLayer& layer = cross_[number];
  if (!layer.keys.defined()) {
    const std::vector<int64_t> sizes = {num_rows(), keys.size(2),
                                        std::max(source_capacity_, keys.size(1)), keys.size(3)};
    layer.keys = new_columns(sizes, keys.options());
    layer.values = new_columns(sizes, values.options());
  }
  const CachedLayer shown = shown_of(layer);
  shown.keys.narrow(2, 0, keys.size(1)).copy_(keys.transpose(1, 2));
  shown.values.narrow(2, 0, values.size(1)).copy_(values.transpose(1, 2));
}

void KeyValueCache::select_rows(const std::vector<int64_t>& rows) {
  check(!rows.empty(), "key-value cache: no rows are left; make a new one");
  for (const int64_t row : rows) {
    check(row >= 0 && row < num_rows(), "key-value cache: row {} of {} is asked for", row,
          num_rows());
  }
  select_layers(rows, *std::ranges::max_element(lengths_));
  source_lengths_ = lengths_of(source_lengths_, rows);
  lengths_ = lengths_of(lengths_, rows);
  show_all_rows();
}

void KeyValueCache::select_layers(const std::vector<int64_t>& rows, int64_t used) {
  for (CachedLayer& layer : layers_) select_layer_rows(layer, rows, num_rows(), used);
  for (CachedLayer& layer : cross_) {
    if (layer.keys.defined()) select_layer_rows(layer, rows, num_rows(), layer.keys.size(2));
  }
}

at::Tensor wanted_rows(const at::Tensor& hidden, const CachedPass& pass) {
  if (!pass.wanted.defined()) return hidden.select(1, hidden.size(1) - 1);
  return hidden.flatten(0, 1).index_select(0, pass.wanted);
}

}  // namespace fullshard::models
