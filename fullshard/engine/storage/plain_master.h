// SPDX-License-Identifier: Apache-2.0
// A master that is always whole: the resting slice itself where that has its dtype, else memory of
// its own, cast where computation sees it.
#pragma once

#include "fullshard/engine/storage/master.h"

namespace fullshard::engine {

class PlainMaster : public Master {
 public:
  explicit PlainMaster(MasterPlace place);
  // With the values that lie in `memory`.
  PlainMaster(MasterPlace place, memory::Block memory);

  at::Tensor values(int64_t first, int64_t numel) const override;
  at::Tensor shown(int64_t first, int64_t numel) const override;
  at::Tensor lower_half(int64_t, int64_t) const override { return {}; }
  bool is_in_halves() const override { return false; }
  std::vector<MasterPart> parts() const override;
  bool is_resting_slice() const override { return !memory_; }

  void make_whole() override {}
  void rest() override {}
  std::unique_ptr<Master> kept_whole() override { return nullptr; }

  void write_seen(const at::Tensor& target, const at::Tensor& values) const override;
  at::Tensor to_send(const at::Tensor& place) const override;
  void show() override;
  void take_written(const at::Tensor& written) override;
  void relocate(const memory::Relocation& relocation, const at::Tensor& resting) override;
  void finish_update(bool is_shown) override;

 private:
  at::ScalarType compute_dtype_;
  memory::Block memory_;  // empty: the values are the resting slice
  at::Tensor values_;     // 1-D
  at::Tensor shown_;      // the resting slice where it is memory apart
};

}  // namespace fullshard::engine
