// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/slot_gradients.h"

#include <utility>

namespace fullshard::engine {
namespace {

// Two tensors of a group may both be large (an embedding and an output layer).
bool is_most_of(int64_t part, int64_t whole) { return part * 5 >= whole * 2; }

}  // namespace

SlotGradients::SlotGradients(std::shared_ptr<memory::Pool> pool, const Layout& layout,
                             at::ScalarType dtype)
    : pool_(std::move(pool)),
      layout_(layout),
      dtype_(dtype),
      dedicated_(layout.slots().size()),
      filled_(layout.slots().size(), false) {
  const auto& slots = layout.slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    const int64_t end = i + 1 < slots.size() ? slots[i + 1].offset : layout.numel();
    const bool is_alone = is_most_of(slots[i].numel, layout.tensor_numel());
    offsets_.push_back(is_alone ? -1 : numel_);
    if (!is_alone) numel_ += end - slots[i].offset;  // with the padding behind it: stays aligned
  }
}

void SlotGradients::make_room(int slot) {
  const auto& place = layout_.slots()[static_cast<size_t>(slot)];
  if (!is_dedicated(slot)) {
    const auto bytes = numel_ * static_cast<int64_t>(c10::elementSize(dtype_));
    if (!buffer_) buffer_ = pool_->take(bytes, tiers::Purpose::gradients);
    return;
  }
  auto& own = dedicated_[static_cast<size_t>(slot)];
  if (own.defined()) return;
  own = pool_->allocate(place.numel, dtype_).view(place.shape);
  pool_->ledger().hold(tiers::Purpose::gradients, tiers::Tier::device,
                       static_cast<int64_t>(own.nbytes()));
}

at::Tensor SlotGradients::view(int slot) const {
  const auto index = static_cast<size_t>(slot);
  if (is_dedicated(slot)) return dedicated_[index];
  const auto& place = layout_.slots()[index];
  return buffer_.as(numel_, dtype_).narrow(0, offsets_[index], place.numel).view(place.shape);
}

nn::GradientSink SlotGradients::open(int slot) {
  make_room(slot);
  const bool holds_one = filled_[static_cast<size_t>(slot)];
  filled_[static_cast<size_t>(slot)] = true;
  return {view(slot), holds_one};
}

bool SlotGradients::take(int slot, const at::Tensor& gradient) {
  const auto index = static_cast<size_t>(slot);
  const bool is_fit = gradient.scalar_type() == dtype_ && gradient.is_contiguous() &&
                      gradient.sizes() == at::IntArrayRef(layout_.slots()[index].shape);
  if (!is_dedicated(slot) || dedicated_[index].defined() || !is_fit) return false;
  dedicated_[index] = gradient;
  filled_[index] = true;
  pool_->ledger().hold(tiers::Purpose::gradients, tiers::Tier::device,
                       static_cast<int64_t>(gradient.nbytes()));
  return true;
}

void SlotGradients::fill_missing() {
  for (size_t i = 0; i < filled_.size(); ++i) {
    if (filled_[i]) continue;
    const int slot = static_cast<int>(i);
    make_room(slot);
    view(slot).zero_();
    filled_[i] = true;
  }
}

void SlotGradients::relocate(const memory::Relocation& relocation) {
  relocation.move(buffer_);
  for (auto& own : dedicated_) relocation.move(own, tiers::Purpose::gradients);
}

std::vector<at::Tensor> SlotGradients::memory() const {
  std::vector<at::Tensor> memory;
  if (buffer_) memory.push_back(buffer_.memory());
  for (const auto& own : dedicated_) {
    if (own.defined()) memory.push_back(own);
  }
  return memory;
}

void SlotGradients::mark_filled() { filled_.assign(filled_.size(), true); }

void SlotGradients::drop() {
  filled_.assign(filled_.size(), false);
  if (keeps_memory_) return;
  for (auto& own : dedicated_) {
    if (!own.defined()) continue;
    pool_->ledger().drop(tiers::Purpose::gradients, tiers::Tier::device,
                         static_cast<int64_t>(own.nbytes()));
    own = at::Tensor();
  }
  buffer_ = {};
}

void SlotGradients::drop_into(UsedGradients& used) {
  for (auto& own : dedicated_) used.keep(std::exchange(own, at::Tensor()));
  used.keep(std::exchange(buffer_, memory::Block()));
  filled_.assign(filled_.size(), false);
}

}  // namespace fullshard::engine
