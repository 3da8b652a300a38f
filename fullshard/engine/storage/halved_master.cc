// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/halved_master.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "fullshard/engine/storage/plain_master.h"

namespace fullshard::engine {

HalvedMaster::HalvedMaster(MasterPlace place)
    : place_(std::move(place)), memory_(place_.take_from(*place_.scratch_pool)) {}

std::vector<MasterPart> HalvedMaster::parts() const {
  if (!halves_) {
    return {{.kind = MasterPart::Kind::whole, .values = whole(), .tier = memory_.tier()}};
  }
  const auto seen = place_.resting.defined() ? tiers::Tier::device : place_.parameter_pool->tier();
  return {{.kind = MasterPart::Kind::nearest, .values = halves_->nearest(), .tier = seen},
          {.kind = MasterPart::Kind::lower,
           .values = halves_->lower(),
           .tier = place_.state_pool->tier()}};
}

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
  memory_ = place_.take_from(*place_.scratch_pool);
  halves_->join_into(whole());
  auto [nearest, lower] = halves_->take_memory();
  if (nearest && nearest.tier() != tiers::Tier::device) nearest_memory_ = std::move(nearest);
  if (lower && lower.tier() != tiers::Tier::device) lower_memory_ = std::move(lower);
  halves_.reset();
}

void HalvedMaster::rest() {
  if (halves_) return;
  at::NoGradGuard no_grad;
  constexpr int64_t kHalfBytes = 2;
  const int64_t bytes = place_.numel * kHalfBytes;
  if (!nearest_memory_ && !place_.resting.defined()) {
    nearest_memory_ = place_.parameter_pool->take(bytes, tiers::Purpose::master);
  }
  if (!lower_memory_) lower_memory_ = place_.state_pool->take(bytes, tiers::Purpose::master);
  halves_.emplace(whole(), place_.resting, std::move(nearest_memory_), std::move(lower_memory_));
  memory_ = {};
}

// Not in scratch memory: it stays.
std::unique_ptr<Master> HalvedMaster::kept_whole() {
  at::NoGradGuard no_grad;
  auto memory = place_.take_from(*place_.state_pool);
  const auto target = memory.as(place_.numel, place_.dtype);
  halves_ ? halves_->join_into(target) : void(target.copy_(whole()));
  return std::make_unique<PlainMaster>(place_, std::move(memory));
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

void HalvedMaster::relocate(const memory::Relocation& relocation, const at::Tensor& resting) {
  place_.resting = resting;
  halves_->relocate(relocation, resting);
}

}  // namespace fullshard::engine
