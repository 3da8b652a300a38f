// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/plain_master.h"

#include <utility>

namespace fullshard::engine {
namespace {

bool fits_resting_slice(const MasterPlace& place) {
  return place.resting.defined() && place.dtype == place.compute_dtype;
}

// A master that is what computation sees rests with the parameters, any other with the states.
memory::Block memory_of(const MasterPlace& place) {
  if (fits_resting_slice(place)) return {};
  const bool is_seen = place.dtype == place.compute_dtype;
  return place.take_from(is_seen ? *place.parameter_pool : *place.state_pool);
}

}  // namespace

PlainMaster::PlainMaster(MasterPlace place) : PlainMaster(place, memory_of(place)) {}

PlainMaster::PlainMaster(MasterPlace place, memory::Block memory)
    : compute_dtype_(place.compute_dtype), memory_(std::move(memory)) {
  values_ = memory_ ? memory_.as(place.numel, place.dtype) : place.resting;
  if (memory_) shown_ = place.resting;
}

std::vector<MasterPart> PlainMaster::parts() const {
  const auto tier = memory_ ? memory_.tier() : tiers::Tier::device;
  return {{.kind = MasterPart::Kind::whole, .values = values_, .tier = tier}};
}

at::Tensor PlainMaster::values(int64_t first, int64_t numel) const {
  return values_.narrow(0, first, numel);
}

at::Tensor PlainMaster::shown(int64_t first, int64_t numel) const {
  return shown_.defined() ? shown_.narrow(0, first, numel) : at::Tensor();
}

void PlainMaster::write_seen(const at::Tensor& target, const at::Tensor& values) const {
  target.copy_(values);
}

at::Tensor PlainMaster::to_send(const at::Tensor& place) const {
  if (values_.scalar_type() == compute_dtype_) return values_;
  write_seen(place, values_);
  return place;
}

void PlainMaster::show() {
  if (shown_.defined()) shown_.copy_(values_);
}

void PlainMaster::take_written(const at::Tensor& written) {
  if (values_.scalar_type() == compute_dtype_) {
    values_.copy_(written);
  } else {
    keep_untouched(values_, values_.to(compute_dtype_), written);
  }
}

void PlainMaster::relocate(const memory::Relocation& relocation, const at::Tensor& resting) {
  relocation.move(memory_);
  if (memory_) shown_ = resting;
  values_ = memory_ ? memory_.as(values_.numel(), values_.scalar_type()) : resting;
}

void PlainMaster::finish_update(bool is_shown) {
  if (!is_shown) show();
}

}  // namespace fullshard::engine
