// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/halved_master.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "fullshard/engine/storage/plain_master.h"

namespace fullshard::engine {

HalvedMaster::HalvedMaster(MasterPlace place) : place_(std::move(place)), memory_(place_.take()) {}

at::Tensor HalvedMaster::values(int64_t first, int64_t numel) const {
  return halves_ ? halves_->joined(first, numel) : whole().narrow(0, first, numel);
}

at::Tensor HalvedMaster::shown(int64_t first, int64_t numel) const {
  if (halves_) return halves_->nearest().narrow(0, first, numel);
  return place_.resting.defined() ? place_.resting.narrow(0, first, numel) : at::Tensor();
}

at::Tensor HalvedMaster::lower_half(int64_t first, int64_t numel) const {
  return halves_ ? halves_->lower().narrow(0, first, numel) : at::Tensor();
}

void HalvedMaster::make_whole() {
  if (!halves_) return;
  at::NoGradGuard no_grad;
  memory_ = place_.take();
  halves_->join_into(whole());
  // Memory of the host is pinned, which takes long: it waits for the next rest().
  if (place_.lower_pool) lower_memory_ = halves_->take_lower();
  halves_.reset();
}

void HalvedMaster::rest() {
  if (halves_) return;
  at::NoGradGuard no_grad;
  if (place_.lower_pool && !lower_memory_) {
    constexpr int64_t kHalfBytes = 2;
    lower_memory_ = place_.lower_pool->take(place_.numel * kHalfBytes, tiers::Purpose::master);
  }
  halves_.emplace(*place_.pool, whole(), place_.resting, std::move(lower_memory_));
  memory_ = {};
}

std::unique_ptr<Master> HalvedMaster::kept_whole() {
  make_whole();
  return std::make_unique<PlainMaster>(place_, std::move(memory_));
}

void HalvedMaster::write_seen(const at::Tensor& target, const at::Tensor& values) const {
  target.copy_(nearest_halves(values.to(target.device())));
}

at::Tensor HalvedMaster::to_send(const at::Tensor& place) const {
  if (halves_) return halves_->nearest();
  write_seen(place, whole());
  return place;
}

// In halves they are there already.
void HalvedMaster::show() {
  if (!halves_ && place_.resting.defined()) write_seen(place_.resting, whole());
}

void HalvedMaster::take_written(const at::Tensor& written) {
  keep_untouched(whole(), nearest_halves(whole()), written);
}

}  // namespace fullshard::engine
