// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/pool.h"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "fullshard/base/bytes.h"

namespace fullshard::memory {
namespace {

// A free block may serve a request that leaves at most an eighth of it unused.
bool fits(int64_t capacity, int64_t bytes) { return capacity - bytes <= capacity / 8; }

}  // namespace

Block::~Block() {
  if (pool_) pool_->give_back(std::move(memory_), bytes_, purpose_);
}

void Block::swap(Block& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(purpose_, other.purpose_);
}

tiers::Tier Block::tier() const { return pool_->tier(); }

void* Block::data() const { return memory_.data_ptr(); }

at::Tensor Block::as(int64_t numel, at::ScalarType dtype) const {
  const auto options = at::TensorOptions().dtype(dtype).device(memory_.device());
  return at::for_blob(data(), {numel})
      .options(options)
      .target_device(memory_.device())
      .make_tensor();
}

Pool::Pool(Source source, std::shared_ptr<Ledger> ledger, tiers::Tier tier, Returned returned)
    : source_(std::move(source)), ledger_(std::move(ledger)), tier_(tier), returned_(returned) {}

Block Pool::take(int64_t bytes, tiers::Purpose purpose) {
  Block block;
  {
    std::lock_guard lock(mutex_);
    const auto found = free_.lower_bound(bytes);
    if (found != free_.end() && fits(found->first, bytes)) {
      block.memory_ = std::move(found->second);
      free_.erase(found);
    }
    lent_bytes_ += bytes;
  }
  if (!block.memory_.defined()) {
    block.memory_ = source_(bytes);
    std::lock_guard lock(mutex_);
    ++num_allocations_;
    reserved_bytes_ += bytes;
  }
  block.bytes_ = bytes;
  block.purpose_ = purpose;
  block.pool_ = shared_from_this();
  ledger_->hold(purpose, tier_, bytes);
  return block;
}

at::Tensor Pool::allocate(int64_t numel, at::ScalarType dtype) const {
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  return source_(bytes).view(dtype).narrow(0, 0, numel);
}

void Pool::give_back(at::Tensor memory, int64_t bytes, tiers::Purpose purpose) noexcept {
  ledger_->drop(purpose, tier_, bytes);
  std::lock_guard lock(mutex_);
  lent_bytes_ -= bytes;
  const int64_t capacity = memory.numel();
  if (returned_ == Returned::freed) {
    reserved_bytes_ -= capacity;
    return;
  }
  free_.emplace(capacity, std::move(memory));
}

int64_t Pool::num_allocations() const {
  std::lock_guard lock(mutex_);
  return num_allocations_;
}

int64_t Pool::reserved_bytes() const {
  std::lock_guard lock(mutex_);
  return reserved_bytes_;
}

int64_t Pool::lent_bytes() const {
  std::lock_guard lock(mutex_);
  return lent_bytes_;
}

}  // namespace fullshard::memory
