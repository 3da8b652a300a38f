// SPDX-License-Identifier: Apache-2.0
// Full parameters that exist only while their unit is used: a block of the pool, filled by an
// all-gather of the ranks' shards (FSDP's flat buffer).
#pragma once

#include "fullshard/engine/plan/traffic.h"
#include "fullshard/engine/storage/full_storage.h"

namespace fullshard::engine {

class GatheredStorage : public FullStorage {
 public:
  using FullStorage::FullStorage;

  bool is_released_at_rest() const override { return true; }
  at::Tensor full() const override { return full_.as(numel(), dtype_); }
  at::Tensor resting_slice() const override { return {}; }

  void fill(Master& master, const InitialValues& values) override;

  void begin_gather(const Master& master) override;
  void finish_gather() override { gather_.wait(); }
  void release() override { full_ = {}; }

  // What was gathered goes with the scope.
  void take_written(Master& master) override { master.take_written(own_slice(full())); }

 private:
  memory::Block full_;
  Works gather_;
};

}  // namespace fullshard::engine
