// SPDX-License-Identifier: Apache-2.0
// Full parameters that every rank keeps whole all the time: stages 0 to 2, single ranks, small
// parameters. Publishing an update gathers the ranks' slices.
#pragma once

#include "fullshard/engine/plan/traffic.h"
#include "fullshard/engine/storage/full_storage.h"
#include "fullshard/engine/storage/private_copy.h"

namespace fullshard::engine {

class ReplicatedStorage : public FullStorage {
 public:
  ReplicatedStorage(const GroupContext& context, const Layout& layout, at::ScalarType dtype,
                    std::string owner);

  bool is_released_at_rest() const override { return false; }
  at::Tensor full() const override { return written_.in_place_of(lasting()); }
  at::Tensor resting_slice() const override { return own_slice(lasting()); }

  void fill(Master& master, const InitialValues& values) override;

  void begin_write() override { written_.open(*context_.pool, lasting()); }
  void take_written(Master& master) override;
  void end_write() override { written_.close(); }

  bool publishes_values() const override { return layout_.num_shards() > 1; }
  void begin_publish() override;
  void finish_publish() override { gather_.wait(); }

  void relocate(const memory::Relocation& relocation) override { relocation.move(full_); }

 private:
  at::Tensor lasting() const { return full_.as(numel(), dtype_); }

  memory::Block full_;
  PrivateCopy written_;
  Works gather_;
};

}  // namespace fullshard::engine
