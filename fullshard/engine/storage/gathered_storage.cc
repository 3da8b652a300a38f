// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/gathered_storage.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace fullshard::engine {
namespace {

// A master that is cast as it is sent, on the caller's stream, and rests elsewhere.
bool is_cast_from_elsewhere(const Master& master, at::ScalarType dtype) {
  const auto parts = master.parts();
  return std::any_of(parts.begin(), parts.end(), [dtype](const MasterPart& part) {
    return part.kind == MasterPart::Kind::whole && part.tier != tiers::Tier::device &&
           part.values.scalar_type() != dtype;
  });
}

}  // namespace

GatheredStorage::GatheredStorage(const GroupContext& context, const Layout& layout,
                                 at::ScalarType dtype, std::string owner, tiers::Tier tier)
    : FullStorage(context, layout, dtype, std::move(owner)),
      tier_(tier),
      from_disk_(*context.tiers) {}

void GatheredStorage::fill(Master& master, const InitialValues& values) {
  values.write_own(master.values(0, layout_.shard_numel()));
}

void GatheredStorage::begin_gather(const Master& master, const memory::LaneMark& stored) {
  at::NoGradGuard no_grad;
  full_ = context_.pool->take(bytes(), tiers::Purpose::parameters);
  if (is_cast_from_elsewhere(master, dtype_)) {
    stored.wait();
    context_.tiers->drain();
  }
  const auto own = own_slice(full());
  const auto sent = master.to_send(own);
  if (sent.is_same(own)) {
    context_.counters->copied_for_gathers += static_cast<int64_t>(own.nbytes());
    return gather(own);
  }
  if (tier_ == tiers::Tier::device) return gather(sent);
  context_.counters->parameters_copied_in += static_cast<int64_t>(own.nbytes());
  if (tier_ == tiers::Tier::disk) {
    stored.wait();
    context_.counters->disk_bytes_read += static_cast<int64_t>(own.nbytes());
    return from_disk_.begin(sent);
  }
  context_.tiers->fetches().wait_for(stored);
  fetch(sent);
}

void GatheredStorage::gather(const at::Tensor& sent) {
  const bool is_whole = layout_.num_shards() == 1 && sent.data_ptr() == full().data_ptr();
  if (!is_whole) gather_ = context_.traffic->gather(full(), sent, owner_);
}

void GatheredStorage::fetch(const at::Tensor& resting) {
  auto& lane = context_.tiers->fetches();
  const auto own = own_slice(full());
  // The memory may be what the caller's stream used last.
  lane.wait_for(memory::LaneMark::of_caller(context_.tiers->device()));
  lane.run([own, resting] { own.copy_(resting, /*non_blocking=*/true); });
  fetched_ = lane.mark();
  gather_fetched();
}

// Issued on the lane, so that it comes behind the copy and the caller's stream does not. A lane of
// the CPU has no time of its own.
void GatheredStorage::gather_fetched() {
  if (layout_.num_shards() == 1) return;
  if (context_.tiers->device().is_cpu()) {
    fetched_.wait();
    return gather(own_slice(full()));
  }
  context_.tiers->fetches().run([this] { gather(own_slice(full())); });
}

void GatheredStorage::release() {
  from_disk_.abandon();
  full_ = {};
}

void GatheredStorage::finish_gather() {
  if (from_disk_.is_under_way()) {
    const auto begin = std::chrono::steady_clock::now();
    fetched_ = from_disk_.finish(own_slice(full()));
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    context_.counters->disk_read_wait_s += waited.count();
    gather_fetched();
  }
  if (tier_ != tiers::Tier::device) {
    context_.tiers->fetch_waits().around_caller(context_.tiers->device(),
                                                [this] { fetched_.hold_caller(); });
  }
  gather_.wait();
}

}  // namespace fullshard::engine
