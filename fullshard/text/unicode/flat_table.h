// SPDX-License-Identifier: Apache-2.0
// A hash table of numbers in one array: filled while loading, then only read.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace fullshard::text {

template <class Value>
class FlatTable {
 public:
  // The last value for a key wins. The key ~0 is not allowed.
  void insert(uint64_t key, const Value& value) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    if (slot.key == kEmpty) ++count_;
    slot = {key, value};
  }

  const Value* find(uint64_t key) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[place(key)];
    return slot.key == key ? &slot.value : nullptr;
  }

  size_t size() const { return count_; }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };

  // The slot of the key, or the free slot where it would be.
  size_t place(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    const uint64_t mixed = key * 0x9E3779B97F4A7C15U;
    size_t i = (mixed ^ (mixed >> 32)) & mask;
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.empty() ? 16 : old.size() * 2, {});
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slots_[place(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace fullshard::text
