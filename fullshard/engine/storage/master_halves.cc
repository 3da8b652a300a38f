// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/master_halves.h"

#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>

#include <algorithm>

namespace fullshard::engine {
namespace {

// So much at a time: the integers in between take several times the memory of their result.
constexpr int64_t kWindow = 1 << 24;
constexpr int64_t kNan = 0x7fc0;

template <class Use>
void in_windows(int64_t numel, const Use& use) {
  for (int64_t first = 0; first < numel; first += kWindow) {
    use(first, std::min(kWindow, numel - first));
  }
}

// `nearest` as int16, perhaps of another device.
void write_nearest(const at::Tensor& master, const at::Tensor& nearest) {
  auto upper = at::bitwise_right_shift(master.view(at::kInt) + 0x8000, 16);
  nearest.copy_(upper.masked_fill_(at::isnan(master), kNan));
}

}  // namespace

at::Tensor nearest_halves(const at::Tensor& values) {
  const auto flat = values.contiguous().view({-1});
  auto nearest = at::empty(values.sizes(), values.options().dtype(at::kBFloat16));
  const auto target = nearest.view({-1}).view(at::kShort);
  in_windows(flat.numel(), [&](int64_t first, int64_t numel) {
    write_nearest(flat.narrow(0, first, numel), target.narrow(0, first, numel));
  });
  return nearest;
}

MasterHalves::MasterHalves(const at::Tensor& master, const at::Tensor& resting,
                           memory::Block nearest, memory::Block lower)
    : nearest_memory_(std::move(nearest)), lower_memory_(std::move(lower)), nearest_(resting) {
  const int64_t numel = master.numel();
  if (!nearest_.defined()) nearest_ = nearest_memory_.as(numel, at::kBFloat16);
  lower_ = lower_memory_.as(numel, at::kShort);
  in_windows(numel, [&](int64_t first, int64_t count) {
    const auto part = master.narrow(0, first, count);
    write_nearest(part, nearest_.narrow(0, first, count).view(at::kShort));
    lower_.narrow(0, first, count).copy_(part.view(at::kInt));  // keeps the low bits
  });
}

void MasterHalves::relocate(const memory::Relocation& relocation, const at::Tensor& resting) {
  const int64_t numel = this->numel();
  relocation.move(nearest_memory_);
  relocation.move(lower_memory_);
  nearest_ = nearest_memory_ ? nearest_memory_.as(numel, at::kBFloat16) : resting;
  lower_ = lower_memory_.as(numel, at::kShort);
}

void MasterHalves::join_into(const at::Tensor& master) const { join(0, master); }

at::Tensor MasterHalves::joined(int64_t first, int64_t numel) const {
  // Where the lower half is: a checkpoint of what rests on the host does not go through the device.
  auto master = at::empty({numel}, lower_.options().dtype(at::kFloat));
  join(first, master);
  return master;
}

void MasterHalves::join(int64_t begin, const at::Tensor& master) const {
  const auto bits = master.view(at::kInt);
  const auto nearest = nearest_.view(at::kShort);
  in_windows(master.numel(), [&](int64_t first, int64_t count) {
    // As signed numbers the lower bits take back what rounding added.
    const auto here = nearest.narrow(0, begin + first, count).to(master.device());
    const auto lower = lower_.narrow(0, begin + first, count).to(master.device());
    bits.narrow(0, first, count).copy_(here.to(at::kInt).mul_(0x10000).add_(lower));
  });
}

}  // namespace fullshard::engine
