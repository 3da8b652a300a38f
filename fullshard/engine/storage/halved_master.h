// SPDX-License-Identifier: Apache-2.0
// An fp32 master that rests in halves: the bf16 values that computation sees, in the resting slice
// where there is one, and the bits that these leave out (master_halves). Whole only while somebody
// writes it.
#pragma once

#include <optional>

#include "fullshard/engine/storage/master.h"
#include "fullshard/engine/storage/master_halves.h"

namespace fullshard::engine {

class HalvedMaster : public Master {
 public:
  explicit HalvedMaster(MasterPlace place);

  at::Tensor values(int64_t first, int64_t numel) const override;
  at::Tensor shown(int64_t first, int64_t numel) const override;
  at::Tensor lower_half(int64_t first, int64_t numel) const override;
  bool is_in_halves() const override { return halves_.has_value(); }
  std::vector<MasterPart> parts() const override;
  bool is_resting_slice() const override { return false; }

  void make_whole() override;
  void rest() override;
  std::unique_ptr<Master> kept_whole() override;

  void write_seen(const at::Tensor& target, const at::Tensor& values) const override;
  at::Tensor to_send(const at::Tensor& place) const override;
  void show() override;
  void take_written(const at::Tensor& written) override;
  void relocate(const memory::Relocation& relocation, const at::Tensor& resting) override;
  void finish_update(bool) override { rest(); }

 private:
  at::Tensor whole() const { return memory_.as(place_.numel, place_.dtype); }

  MasterPlace place_;
  memory::Block memory_;  // while it is whole
  // Meanwhile: memory outside the device takes long to get, as it is pinned or of a file.
  memory::Block nearest_memory_, lower_memory_;
  std::optional<MasterHalves> halves_;
};

}  // namespace fullshard::engine
