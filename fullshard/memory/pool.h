// SPDX-License-Identifier: Apache-2.0
// Buffers that are taken and given back every step: kept by size and reused, so that after the
// second step nothing is allocated and addresses stay the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "fullshard/memory/ledger.h"

namespace fullshard::memory {

class Pool;

// Memory on loan from a pool; goes back, and leaves the ledger, when destroyed. Movable.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept {
    Block(std::move(other)).swap(*this);
    return *this;
  }
  ~Block();

  explicit operator bool() const { return pool_ != nullptr; }
  void* data() const;
  const at::Tensor& memory() const { return memory_; }  // all of it, as its source gave it
  tiers::Tier tier() const;                             // where it lies; it is not empty
  int64_t bytes() const { return bytes_; }              // as they were asked for
  tiers::Purpose purpose() const { return purpose_; }
  bool is_of(const Pool& pool) const { return pool_.get() == &pool; }
  // A 1-D tensor over the first `numel` elements; valid while the block is held.
  at::Tensor as(int64_t numel, at::ScalarType dtype) const;

 private:
  friend class Pool;
  void swap(Block& other) noexcept;

  std::shared_ptr<Pool> pool_;
  at::Tensor memory_;  // uint8
  int64_t bytes_ = 0;  // asked for, as entered in the ledger
  tiers::Purpose purpose_ = tiers::Purpose::workspace;
};

// What happens to a block that comes back: kept for the next taker, or returned to the source,
// where activations can have its memory (the allocator of an accelerator keeps it itself).
enum class Returned { kept, freed };

// Thread-safe. Held by shared_ptr: blocks keep their pool.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  using Source = std::function<at::Tensor(int64_t bytes)>;  // gives 1-D uint8 tensors

  Pool(Source source, std::shared_ptr<Ledger> ledger, tiers::Tier tier,
       Returned returned = Returned::kept);

  Block take(int64_t bytes, tiers::Purpose purpose);
  // Straight from the source, for tensors that are freed with their last handle; the caller keeps
  // the ledger.
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) const;

  tiers::Tier tier() const { return tier_; }
  int64_t num_allocations() const;  // calls of the source
  int64_t reserved_bytes() const;   // taken from the source, in use or not
  int64_t lent_bytes() const;       // of the blocks that are held now
  Ledger& ledger() { return *ledger_; }
  const std::shared_ptr<Ledger>& shared_ledger() const { return ledger_; }

 private:
  friend class Block;
  void give_back(at::Tensor memory, int64_t bytes, tiers::Purpose purpose) noexcept;

  mutable std::mutex mutex_;
  Source source_;
  std::shared_ptr<Ledger> ledger_;
  tiers::Tier tier_;
  Returned returned_;
  std::multimap<int64_t, at::Tensor> free_;  // by capacity in bytes
  int64_t num_allocations_ = 0;
  int64_t reserved_bytes_ = 0;
  int64_t lent_bytes_ = 0;
};

}  // namespace fullshard::memory
