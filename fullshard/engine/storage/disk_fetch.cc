// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/disk_fetch.h"

#include <algorithm>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"

namespace fullshard::engine {

int64_t DiskFetch::num_parts() const { return (resting_.numel() + part_numel_ - 1) / part_numel_; }

at::Tensor DiskFetch::part(const at::Tensor& whole, int64_t index) const {
  const int64_t first = index * part_numel_;
  return whole.narrow(0, first, std::min(part_numel_, whole.numel() - first));
}

void DiskFetch::begin_part(int64_t index) {
  auto& disk = *tiers_.disk_of_parameters();
  auto& buffer = buffers_[static_cast<size_t>(index) % buffers_.size()];
  buffer.ticket = disk.file().read(disk.window_of(part(resting_, index)),
                                   static_cast<char*>(buffer.memory.data()));
}

void DiskFetch::begin(const at::Tensor& resting) {
  abandon();  // what a failed pass left
  if (resting.numel() == 0) return;
  resting_ = resting;
  // Parts begin at multiples of 4 KiB.
  part_numel_ = std::min(round_up(tiers_.parameter_buffer_numel(), memory::DiskMemory::kAlign),
                         round_up(resting.numel(), memory::DiskMemory::kAlign));
  buffers_.resize(static_cast<size_t>(std::min(num_parts(), tiers_.parameter_buffer_count())));
  for (size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].memory =
        tiers_.staging()->take(part_numel_ * resting.element_size(), tiers::Purpose::parameters);
    begin_part(static_cast<int64_t>(i));
  }
}

void DiskFetch::copy_parts(const at::Tensor& target) {
  auto& lane = tiers_.fetches();
  // The target's memory may be what the caller's stream used last.
  lane.wait_for(memory::LaneMark::of_caller(tiers_.device()));
  const auto count = static_cast<int64_t>(buffers_.size());
  for (int64_t i = 0; i < num_parts(); ++i) {
    auto& buffer = buffers_[static_cast<size_t>(i % count)];
    tiers_.disk_of_parameters()->file().wait(std::exchange(buffer.ticket, {}));
    const auto to = part(target, i);
    const auto from = buffer.memory.as(to.numel(), to.scalar_type());
    lane.run([to, from] { to.copy_(from, /*non_blocking=*/true); });
    buffer.copied = lane.mark();
    if (i + count >= num_parts()) continue;
    buffer.copied.wait();
    begin_part(i + count);
  }
}

memory::LaneMark DiskFetch::finish(const at::Tensor& target) {
  try {
    copy_parts(target);
    const auto mark = tiers_.fetches().mark();
    for (const auto& buffer : buffers_) buffer.copied.wait();
    abandon();
    return mark;
  } catch (...) {
    abandon();
    throw;
  }
}

void DiskFetch::abandon() {
  for (auto& buffer : buffers_) {
    if (!buffer.ticket) continue;
    try {
      tiers_.disk_of_parameters()->file().wait(std::exchange(buffer.ticket, {}));
    } catch (const Error&) {  // whoever asked for it has been told, or does not ask any more
    }
  }
  buffers_.clear();
  resting_ = at::Tensor();
}

}  // namespace fullshard::engine
