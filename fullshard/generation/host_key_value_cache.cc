// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/host_key_value_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::generation {
namespace {

int64_t bytes_of(const at::Tensor& keys, const at::Tensor& values) {
  return static_cast<int64_t>(keys.nbytes() + values.nbytes());
}

// From the device without a wait: pinned memory, where there is something to pin for.
at::Tensor copy_to_host(const at::Tensor& tokens) {
  const auto dense = tokens.contiguous();
  if (dense.is_cpu()) return dense.clone();
  auto copy = at::empty(dense.sizes(), dense.options().device(at::kCPU).pinned_memory(true));
  copy.copy_(dense, /*non_blocking=*/true);
  return copy;
}

// [rows, count, heads, D] into the columns of their rows in [capacity, rows, heads, D].
void put_columns(const at::Tensor& resting, const at::Tensor& tokens,
                 const std::vector<int64_t>& starts, int64_t first_row) {
  const int64_t num_rows = resting.size(1), count = tokens.size(1);
  const auto bytes = static_cast<int64_t>(tokens.nbytes()) / (tokens.size(0) * count);
  auto* const to = static_cast<char*>(resting.mutable_data_ptr());
  const auto* const from = static_cast<const char*>(tokens.const_data_ptr());
  for (int64_t row = 0; row < tokens.size(0); ++row) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t column = starts[static_cast<size_t>(row)] + i;
      std::memcpy(to + (column * num_rows + first_row + row) * bytes,
                  from + (row * count + i) * bytes, static_cast<size_t>(bytes));
    }
  }
}

at::Tensor index_of(const std::vector<int64_t>& rows) {
  return at::tensor(rows, at::TensorOptions().dtype(at::kLong));
}

}  // namespace

HostKeyValueCache::HostKeyValueCache(int64_t num_rows, int64_t capacity, at::Device device)
    : KeyValueCache(num_rows, capacity),
      device_(device),
      host_memory_(memory::host_memory_source(memory::pin_memory_for(device))),
      fetches_(device) {}

HostKeyValueCache::~HostKeyValueCache() { drop_ahead(); }

// The bus reads host memory until then.
void HostKeyValueCache::drop_ahead() {
  for (const auto& [name, window] : ahead_) window.filled.wait();
  ahead_.clear();
}

int64_t HostKeyValueCache::bytes() const {
  int64_t total = 0;
  for (const auto& [name, resting] : layers_) total += bytes_of(resting.keys, resting.values);
  return total;
}

int64_t HostKeyValueCache::Window::bytes() const { return bytes_of(layer.keys, layer.values); }

int64_t HostKeyValueCache::longest_shown() const {
  const auto shown = lengths().begin() + first_shown();
  return *std::max_element(shown, shown + num_shown());
}

at::Tensor HostKeyValueCache::new_host_memory(const std::vector<int64_t>& sizes,
                                              at::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : sizes) bytes *= size;
  // Columns that were never stored take part with a probability of 0: no NaN may lie there.
  return host_memory_(bytes).zero_().view(dtype).view(sizes);
}

HostKeyValueCache::Resting& HostKeyValueCache::resting(const Name& name, const at::Tensor& keys,
                                                       int64_t capacity) {
  Resting& found = layers_[name];
  if (!found.keys.defined()) {
    const std::vector<int64_t> sizes = {capacity, num_rows(), keys.size(2), keys.size(3)};
    found.keys = new_host_memory(sizes, keys.scalar_type());
    found.values = new_host_memory(sizes, keys.scalar_type());
  }
  return found;
}

void HostKeyValueCache::leave(Resting& resting, const at::Tensor& keys, const at::Tensor& values,
                              std::vector<int64_t> starts) {
  resting.departed.push_back({.keys = copy_to_host(keys),
                              .values = copy_to_host(values),
                              .starts = std::move(starts),
                              .first_row = first_shown(),
                              .arrived = memory::LaneMark::of_caller(device_)});
}

void HostKeyValueCache::put_in_place(Resting& resting) {
  for (const Departed& departed : resting.departed) {
    departed.arrived.wait();
    put_columns(resting.keys, departed.keys, departed.starts, departed.first_row);
    put_columns(resting.values, departed.values, departed.starts, departed.first_row);
  }
  resting.departed.clear();
}

HostKeyValueCache::Window HostKeyValueCache::fetch(const Name& name, int64_t num_filled,
                                                   int64_t num_columns) {
  Resting& resting = layers_.at(name);
  put_in_place(resting);
  Window window{.layer = {}, .num_filled = num_filled, .first_row = first_shown(), .filled = {}};
  const auto options = resting.keys.options().device(device_);
  const std::vector<int64_t> sizes = {num_shown(), resting.keys.size(2), num_columns,
                                      resting.keys.size(3)};
  window.layer = {at::zeros(sizes, options), at::zeros(sizes, options)};
  // As they rest, in one stretch, and from there into their places.
  const auto bring = [&](const at::Tensor& whole, const at::Tensor& target) {
    const auto from = whole.narrow(0, 0, num_filled).narrow(1, first_shown(), num_shown());
    const auto arrived = at::empty(from.sizes(), options);
    fetches_.run([from, arrived, to = target.narrow(2, 0, num_filled)] {
      arrived.copy_(from, /*non_blocking=*/true);
      to.copy_(arrived.permute({1, 2, 0, 3}));
    });
    fetches_.keep(arrived);
    fetches_.keep(target);
  };
  // The memory may be what the caller's stream used last, and is zeroed there.
  fetches_.wait_for(memory::LaneMark::of_caller(device_));
  if (num_filled > 0) {
    bring(resting.keys, window.layer.keys);
    bring(resting.values, window.layer.values);
  }
  window.filled = fetches_.mark();
  return window;
}

// What was fetched ahead, if it still is what is wanted.
HostKeyValueCache::Window HostKeyValueCache::take_window(const Name& name, int64_t num_filled,
                                                         int64_t num_columns) {
  auto found = ahead_.extract(name);
  const auto is_wanted = [&](const Window& window) {
    return window.num_filled == num_filled && window.layer.keys.size(2) >= num_columns &&
           window.first_row == first_shown() && window.layer.keys.size(0) == num_shown();
  };
  Window window = !found.empty() && is_wanted(found.mapped())
                      ? std::move(found.mapped())
                      : fetch(name, num_filled, num_columns);
  window.filled.hold_caller();
  return window;
}

// The layer that a pass asks for behind this one; behind the last, the first, for the next pass.
void HostKeyValueCache::fetch_next(const Name& name, int64_t count) {
  auto next = std::next(layers_.find(name));
  const bool is_next_pass = next == layers_.end();
  if (is_next_pass) next = layers_.begin();
  if (next->first == name) return;
  int64_t filled = longest_shown();
  if (is_next_pass) filled = std::min(filled + count, capacity());
  int64_t columns = std::min(filled + (is_next_pass ? 1 : count), capacity());
  if (next->first.second == Kind::cross) filled = columns = next->second.keys.size(0);
  ahead_.clear();
  const Window& window = ahead_[next->first] = fetch(next->first, filled, columns);
  peak_device_bytes_ = std::max(peak_device_bytes_, 2 * window.bytes());
}

models::CachedLayer HostKeyValueCache::layer(size_t number, const ops::CachePlaces& places) {
  const Name name{number, Kind::own};
  if (!layers_.contains(name)) return {};
  shown_ = take_window(name, *std::ranges::max_element(places.starts), places.num_columns()).layer;
  return shown_;
}

models::CachedLayer HostKeyValueCache::store(size_t number, const at::Tensor& keys,
                                             const at::Tensor& values,
                                             const ops::CachePlaces& places) {
  const Name name{number, Kind::own};
  Resting& own = resting(name, keys, capacity());
  if (!shown_.keys.defined()) layer(number, places);
  const models::CachedLayer layer = std::exchange(shown_, {});
  ops::store_in_cache(layer.keys, keys, places);
  ops::store_in_cache(layer.values, values, places);
  leave(own, keys, values, places.starts);
  fetch_next(name, places.count);
  return layer;
}

void HostKeyValueCache::stored(size_t number, const ops::CachePlaces& places) {
  const Name name{number, Kind::own};
  const auto& sizes = shown_.keys.sizes();
  const auto column =
      places.positions.view({-1, 1, 1, 1}).expand({sizes[0], sizes[1], places.count, sizes[3]});
  const auto new_columns = [&](const at::Tensor& cache) {
    return cache.gather(2, column).transpose(1, 2);
  };
  leave(layers_.at(name), new_columns(shown_.keys), new_columns(shown_.values), places.starts);
  shown_ = {};
  fetch_next(name, places.count);
}

void HostKeyValueCache::set_cross(size_t number, const at::Tensor& keys, const at::Tensor& values) {
  const Name name{number, Kind::cross};
  ahead_.erase(name);  // it has what was there before
  Resting& own = resting(name, keys, std::max(source_capacity(), keys.size(1)));
  leave(own, keys, values, std::vector<int64_t>(static_cast<size_t>(keys.size(0)), 0));
}

models::CachedLayer HostKeyValueCache::cross(size_t number) {
  const Name name{number, Kind::cross};
  const int64_t columns = layers_.at(name).keys.size(0);
  const models::CachedLayer layer = take_window(name, columns, columns).layer;
  fetch_next(name, 1);
  return layer;
}

void HostKeyValueCache::select_layers(const std::vector<int64_t>& rows, int64_t used) {
  drop_ahead();
  const bool is_more = static_cast<int64_t>(rows.size()) > num_rows();
  const auto index = index_of(rows);
  for (auto& [name, resting] : layers_) {
    put_in_place(resting);
    const int64_t columns = name.second == Kind::cross ? resting.keys.size(0) : used;
    for (at::Tensor* cache : {&resting.keys, &resting.values}) {
      const auto chosen = cache->narrow(0, 0, columns).index_select(1, index);
      auto sizes = cache->sizes().vec();
      sizes[1] = index.size(0);
      // Fewer rows lie side by side again, at the front.
      const auto memory =
          is_more ? new_host_memory(sizes, cache->scalar_type())
                  : cache->view(-1).narrow(0, 0, c10::multiply_integers(sizes)).view(sizes);
      memory.narrow(0, 0, columns).copy_(chosen);
      *cache = memory;
    }
  }
}

}  // namespace fullshard::generation
