// SPDX-License-Identifier: Apache-2.0
// Keys and values in host memory, for batches whose cache finds no room on the device. A layer
// comes to the device when its turn is near, one ahead of the one that computes, and only its new
// columns go back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fullshard/memory/host_memory.h"
#include "fullshard/memory/lane.h"
#include "fullshard/models/common/key_value_cache.h"

namespace fullshard::generation {

class HostKeyValueCache : public models::KeyValueCache {
 public:
  HostKeyValueCache(int64_t num_rows, int64_t capacity, at::Device device);
  ~HostKeyValueCache() override;

  int64_t bytes() const override;  // of host memory
  // Of the layers that are on the device at a time, at most so far.
  int64_t peak_device_bytes() const { return peak_device_bytes_; }

  models::CachedLayer layer(size_t number, const ops::CachePlaces& places) override;
  void stored(size_t number, const ops::CachePlaces& places) override;
  models::CachedLayer store(size_t layer, const at::Tensor& keys, const at::Tensor& values,
                            const ops::CachePlaces& places) override;
  void set_cross(size_t layer, const at::Tensor& keys, const at::Tensor& values) override;
  models::CachedLayer cross(size_t layer) override;

 protected:
  void select_layers(const std::vector<int64_t>& rows, int64_t used) override;

 private:
  enum class Kind { own, cross };
  using Name = std::pair<size_t, Kind>;  // in the order in which a pass asks for them

  // Columns that have left the device, or are on their way, and are not yet in their places.
  struct Departed {
    at::Tensor keys, values;  // [rows, count, heads, D]
    std::vector<int64_t> starts;
    int64_t first_row = 0;
    memory::LaneMark arrived;
  };
  struct Resting {
    // [capacity, rows, heads, D]: the columns in use are one stretch of memory, which the bus takes
    // in one go.
    at::Tensor keys, values;
    std::vector<Departed> departed;
  };
  struct Window {
    models::CachedLayer layer;  // on the device, with as many columns as are wanted
    int64_t num_filled = 0;     // of them
    int64_t first_row = 0;
    memory::LaneMark filled;

    int64_t bytes() const;
  };

  Resting& resting(const Name& name, const at::Tensor& keys, int64_t capacity);
  at::Tensor new_host_memory(const std::vector<int64_t>& sizes, at::ScalarType dtype);
  void leave(Resting& resting, const at::Tensor& keys, const at::Tensor& values,
             std::vector<int64_t> starts);
  void put_in_place(Resting& resting);
  Window fetch(const Name& name, int64_t num_filled, int64_t num_columns);
  int64_t longest_shown() const;
  Window take_window(const Name& name, int64_t num_filled, int64_t num_columns);
  void fetch_next(const Name& name, int64_t count);
  void drop_ahead();

  at::Device device_;
  memory::Pool::Source host_memory_;
  std::map<Name, Resting> layers_;
  std::map<Name, Window> ahead_;  // at most one
  models::CachedLayer shown_;     // what layer() gave, until something is stored
  memory::Lane fetches_;
  int64_t peak_device_bytes_ = 0;
};

}  // namespace fullshard::generation
