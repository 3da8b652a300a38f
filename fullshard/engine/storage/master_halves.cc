// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/master_halves.h"

#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>

#include <algorithm>

#include "fullshard/base/float_halves.h"
#include "fullshard/tensor/parallel.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::engine {
namespace {

// So much at a time: what is on its way between devices takes memory of its own.
constexpr int64_t kWindow = 1 << 24;
constexpr int64_t kElementsPerThread = 1 << 15;
constexpr int64_t kNan = 0x7fc0;

template <class Use>
void in_windows(int64_t numel, const Use& use) {
  for (int64_t first = 0; first < numel; first += kWindow) {
    use(first, std::min(kWindow, numel - first));
  }
}

// Memory of the host for int16 of a window: a part of `tensor` itself, or where it lies elsewhere
// room that all windows share.
class OnHost {
 public:
  explicit OnHost(const at::Tensor& tensor) : tensor_(tensor) {
    if (tensor_.is_cpu()) return;
    const auto options = at::TensorOptions().dtype(at::kShort).pinned_memory(tensor_.is_cuda());
    room_ = at::empty({std::min(kWindow, tensor_.numel())}, options);
  }

  at::Tensor part(int64_t first, int64_t numel) const {
    return room_.defined() ? room_.narrow(0, 0, numel) : tensor_.narrow(0, first, numel);
  }
  at::Tensor read(int64_t first, int64_t numel) const {
    if (room_.defined()) part(first, numel).copy_(tensor_.narrow(0, first, numel));
    return part(first, numel);
  }
  void written(int64_t first, int64_t numel) const {
    if (room_.defined()) tensor_.narrow(0, first, numel).copy_(part(first, numel));
  }

 private:
  at::Tensor tensor_, room_;
};

uint16_t* halves_at(const at::Tensor& part) {
  return reinterpret_cast<uint16_t*>(part.mutable_data_ptr<int16_t>());
}

// Of a master in host memory: read once, written once. `lower` may be undefined.
void split_on_host(const at::Tensor& master, const at::Tensor& nearest, const at::Tensor& lower) {
  const OnHost nearest_side(nearest), lower_side(lower.defined() ? lower : nearest);
  in_windows(master.numel(), [&](int64_t first, int64_t count) {
    const auto nearest_part = nearest_side.part(first, count);
    const auto lower_part = lower.defined() ? lower_side.part(first, count) : at::Tensor();
    if (!tensor::is_pretended()) {
      const float* from = master.const_data_ptr<float>() + first;
      uint16_t* const to_nearest = halves_at(nearest_part);
      uint16_t* const to_lower = lower.defined() ? halves_at(lower_part) : nullptr;
      tensor::parallel_ranges(count, kElementsPerThread, [=](int64_t begin, int64_t end) {
        if (to_lower == nullptr) {
          for (int64_t i = begin; i < end; ++i) to_nearest[i] = base::halves_of(from[i]).nearest;
          return;
        }
        for (int64_t i = begin; i < end; ++i) {
          const auto halves = base::halves_of(from[i]);
          to_nearest[i] = halves.nearest;
          to_lower[i] = halves.lower;
        }
      });
    }
    nearest_side.written(first, count);
    if (lower.defined()) lower_side.written(first, count);
  });
}

void join_on_host(const at::Tensor& master, const at::Tensor& nearest, const at::Tensor& lower) {
  const OnHost nearest_side(nearest), lower_side(lower);
  in_windows(master.numel(), [&](int64_t first, int64_t count) {
    const auto nearest_part = nearest_side.read(first, count);
    const auto lower_part = lower_side.read(first, count);
    if (tensor::is_pretended()) return;
    float* const to = master.mutable_data_ptr<float>() + first;
    const uint16_t *from_nearest = halves_at(nearest_part), *from_lower = halves_at(lower_part);
    tensor::parallel_ranges(count, kElementsPerThread, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = base::joined({from_nearest[i], from_lower[i]});
    });
  });
}

// `nearest` as int16, perhaps of another device; the master is of an accelerator.
void write_nearest(const at::Tensor& master, const at::Tensor& nearest) {
  auto upper = at::bitwise_right_shift(master.view(at::kInt) + 0x8000, 16);
  nearest.copy_(upper.masked_fill_(at::isnan(master), kNan));
}

}  // namespace

at::Tensor nearest_halves(const at::Tensor& values) {
  const auto flat = values.contiguous().view({-1});
  auto nearest = at::empty(values.sizes(), values.options().dtype(at::kBFloat16));
  const auto target = nearest.view({-1}).view(at::kShort);
  if (flat.is_cpu()) {
    split_on_host(flat, target, {});
    return nearest;
  }
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
  if (master.is_cpu()) {
    split_on_host(master, nearest_.view(at::kShort), lower_);
    return;
  }
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
  if (master.is_cpu()) {
    join_on_host(master, nearest.narrow(0, begin, master.numel()),
                 lower_.narrow(0, begin, master.numel()));
    return;
  }
  in_windows(master.numel(), [&](int64_t first, int64_t count) {
    // As signed numbers the lower bits take back what rounding added.
    const auto here = nearest.narrow(0, begin + first, count).to(master.device());
    const auto lower = lower_.narrow(0, begin + first, count).to(master.device());
    bits.narrow(0, first, count).copy_(here.to(at::kInt).mul_(0x10000).add_(lower));
  });
}

}  // namespace fullshard::engine
