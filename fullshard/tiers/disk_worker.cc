// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/disk_worker.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/disk/direct_buffer.h"

namespace fullshard::tiers {

DiskWorker::DiskWorker(const UnnamedFile& file, std::atomic<bool>& is_direct,
                       const DiskSettings& disk, int most_parts,
                       const MakeTransfers& make_transfers,
                       std::function<void(const DiskBlock&)> ended)
    : file_(file),
      is_direct_(is_direct),
      disk_(disk),
      ended_(std::move(ended)),
      transfers_(make_transfers(static_cast<int>(disk.queue_depth))),
      requests_(static_cast<size_t>(disk.queue_depth)),
      parts_(static_cast<size_t>(most_parts)) {
  check(transfers_ != nullptr, "offload: nothing moves bytes between memory and '{}'",
        file.folder());
  for (int i = 0; i < disk.queue_depth; ++i) free_requests_.push_back(i);
  thread_ = std::thread([this] { run(); });
}

DiskWorker::~DiskWorker() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void DiskWorker::post(const DiskPart& part) {
  {
    const std::lock_guard lock(mutex_);
    parts_.push(part);
  }
  posted_.notify_one();
}

void DiskWorker::add_to(DiskCounters& counters) const {
  const std::lock_guard lock(mutex_);
  counters.bytes_read += counters_.bytes_read;
  counters.bytes_written += counters_.bytes_written;
  counters.num_requests += counters_.num_requests;
  counters.largest_request = std::max(counters.largest_request, counters_.largest_request);
  counters.num_submits += counters_.num_submits;
  counters.num_overlapping += counters_.num_overlapping;
  counters.peak_under_way = std::max(counters.peak_under_way, counters_.peak_under_way);
  counters.bytes_of_thread.push_back(counters_.bytes_read + counters_.bytes_written);
}

void DiskWorker::run() {
  try {
    while (step()) {
    }
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

// False: it is over, and nothing is under way.
bool DiskWorker::step() {
  if (num_under_way_ == 0) {
    std::unique_lock lock(mutex_);
    posted_.wait(lock, [this] { return is_over_ || !parts_.empty(); });
    if (is_over_) return false;
  }
  if (num_under_way_ == 0 || disk_.overlap_events) ask();
  if (num_under_way_ == 0) return true;
  const disk::Transfers::Ended ended = transfers_->wait();
  finish(static_cast<int>(ended.id), ended.result);
  return true;
}

// For as much as may be under way.
void DiskWorker::ask() {
  const bool is_beside_others = num_under_way_ > 0;
  bool is_any = false;
  while (num_under_way_ < disk_.queue_depth) {
    const auto block = take_block();
    if (!block) break;
    const int request = free_requests_.back();
    free_requests_.pop_back();
    requests_[static_cast<size_t>(request)] = {*block, block->bytes, false};
    ++num_under_way_;
    prepare(request);
    if (disk_.single_submit) submit();
    is_any = true;
  }
  if (!is_any) return;
  if (!disk_.single_submit) submit();
  const std::lock_guard lock(mutex_);
  counters_.num_overlapping += is_beside_others;
  counters_.peak_under_way = std::max(counters_.peak_under_way, num_under_way_);
}

std::optional<DiskPart> DiskWorker::take_block() {
  const std::lock_guard lock(mutex_);
  if (is_over_ || parts_.empty()) return std::nullopt;
  DiskPart& part = parts_.front();
  DiskPart block = part;
  block.bytes = std::min(part.bytes, disk_.block_size);
  part.offset += block.bytes;
  part.data += block.bytes;
  part.bytes -= block.bytes;
  if (part.bytes == 0) parts_.pop();
  return block;
}

void DiskWorker::prepare(int request) {
  Request& asked = requests_[static_cast<size_t>(request)];
  const DiskPart& left = asked.left;
  const bool is_foreign = left.descriptor >= 0;
  asked.is_direct =
      !is_foreign && is_direct_ && disk::is_direct_aligned(left.offset, left.data, left.bytes);
  const int own = asked.is_direct ? file_.direct() : file_.plain();
  transfers_->prepare(request, {.descriptor = is_foreign ? left.descriptor : own,
                                .is_write = left.is_write,
                                .offset = left.offset,
                                .data = left.data,
                                .bytes = left.bytes});
  const std::lock_guard lock(mutex_);
  ++counters_.num_requests;
  counters_.largest_request = std::max(counters_.largest_request, left.bytes);
}

void DiskWorker::submit() {
  transfers_->submit();
  const std::lock_guard lock(mutex_);
  ++counters_.num_submits;
}

// What was left undone is asked for again; a part of a block through the page cache, since it may
// not be aligned any more.
void DiskWorker::finish(int request, int64_t result) {
  Request& asked = requests_[static_cast<size_t>(request)];
  DiskPart& left = asked.left;
  if (result == left.bytes) return end(request, 0);
  if (result == -EINVAL && asked.is_direct) {
    is_direct_ = false;
  } else if (result < 0 && result != -EINTR && result != -EAGAIN) {
    return end(request, static_cast<int>(-result));
  } else if (result == 0) {
    return end(request, left.is_write ? ENOSPC : DiskBlock::kEndedEarly);
  } else if (result > 0) {
    left.offset += result;
    left.data += result;
    left.bytes -= result;
  }
  prepare(request);
  submit();
}

void DiskWorker::end(int request, int error) {
  const Request& asked = requests_[static_cast<size_t>(request)];
  if (error == 0) {
    const std::lock_guard lock(mutex_);
    (asked.left.is_write ? counters_.bytes_written : counters_.bytes_read) += asked.block_bytes;
  }
  --num_under_way_;
  free_requests_.push_back(request);
  ended_({asked.left.ticket, asked.left.data, asked.block_bytes, error, problem_});
}

// The kernel takes no more requests: whoever waits, now or later, is told why.
void DiskWorker::give_up(std::string problem) {
  problem_ = std::move(problem);
  transfers_.reset();  // waits: the memory is in use till then
  std::vector<bool> is_free(requests_.size(), false);
  for (const int request : free_requests_) is_free[static_cast<size_t>(request)] = true;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (!is_free[i]) end(static_cast<int>(i), DiskBlock::kBroken);
  }
  while (true) {
    DiskPart part;
    {
      std::unique_lock lock(mutex_);
      posted_.wait(lock, [this] { return is_over_ || !parts_.empty(); });
      if (is_over_) return;
      part = parts_.front();
      parts_.pop();
    }
    ended_({part.ticket, part.data, part.bytes, DiskBlock::kBroken, problem_});
  }
}

}  // namespace fullshard::tiers
