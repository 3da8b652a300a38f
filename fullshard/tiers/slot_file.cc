// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/slot_file.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/disk/direct_buffer.h"

namespace fullshard::tiers {
namespace {

int64_t padded(int64_t bytes) { return round_up(bytes, disk::kDirectAlign); }

const DiskSettings& checked(const DiskSettings& disk) {
  if (const auto problem = problem_of(disk)) {
    fail_as(ErrorKind::usage, "aio.{}: {}", problem->key, problem->message);
  }
  return disk;
}

// Where each slot begins, and at last where the file ends.
std::vector<int64_t> offsets_of(const std::vector<int64_t>& slot_bytes) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  std::vector<int64_t> offsets = {0};
  for (size_t slot = 0; slot < slot_bytes.size(); ++slot) {
    const int64_t bytes = slot_bytes[slot];
    check(bytes >= 0 && bytes < kMost - offsets.back(),
          "offload: slot {} is to have {} bytes, expected a number of at least 0 that fits a file",
          slot, bytes);
    offsets.push_back(offsets.back() + padded(bytes));
  }
  return offsets;
}

std::unique_ptr<disk::Transfers> make_default_transfers(int depth) {
  return disk::make_transfers(depth);
}

}  // namespace

SlotFile::SlotFile(SlotFileOptions options)
    : slot_bytes_(std::move(options.slot_bytes)),
      slot_offsets_(offsets_of(slot_bytes_)),
      disk_(checked(options.disk)),
      owner_(std::move(options.owner)),
      is_planned_(options.is_planned),
      file_(options.folder, slot_offsets_.back(), is_planned_),
      is_direct_(file_.direct() >= 0),
      operations_(static_cast<size_t>(options.num_tickets)) {
  check(options.num_tickets > 0, "offload: {} tickets, expected at least 1", options.num_tickets);
  if (is_planned_) return;
  const auto make = options.make_transfers ? options.make_transfers : make_default_transfers;
  for (int64_t i = 0; i < disk_.num_threads; ++i) {
    workers_.push_back(
        std::make_unique<DiskWorker>(file_, is_direct_, disk_, options.num_tickets, make,
                                     [this](const DiskBlock& block) { end(block); }));
  }
}

SlotFile::~SlotFile() = default;

int SlotFile::add_slot(int64_t bytes) {
  auto grown = slot_bytes_;
  grown.push_back(bytes);
  auto offsets = offsets_of(grown);
  const bool was_empty = file_.bytes() == 0;  // nobody could try it yet
  file_.grow(offsets.back());
  if (was_empty) is_direct_ = file_.direct() >= 0;
  slot_bytes_ = std::move(grown);
  slot_offsets_ = std::move(offsets);
  return num_slots() - 1;
}

std::shared_ptr<char> SlotFile::map_slot(int slot) const {
  check(slot >= 0 && slot < num_slots(), "offload: no slot {}, there are {}", slot, num_slots());
  const auto bytes = static_cast<size_t>(std::max<int64_t>(padded(slot_bytes(slot)), 1));
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.plain(),
                      slot_offsets_[static_cast<size_t>(slot)]);
  if (data == MAP_FAILED) {
    fail("offload: slot {} of '{}' cannot be mapped: {}", slot, base::printable(folder()),
         std::strerror(errno));
  }
  return {static_cast<char*>(data), [bytes](char* memory) { ::munmap(memory, bytes); }};
}

SlotFile::Ticket SlotFile::read(const Window& window, char* data) {
  return begin(window, data, false);
}

SlotFile::Ticket SlotFile::write(const Window& window, const char* data) {
  return begin(window, const_cast<char*>(data), true);  // which is only read
}

void SlotFile::check_window(const Window& window, const char* data) const {
  check(window.slot >= 0 && window.slot < num_slots(), "offload: no slot {}, there are {}",
        window.slot, num_slots());
  const int64_t bytes = slot_bytes(window.slot);
  check(window.offset >= 0 && window.bytes >= 0 && window.offset <= bytes &&
            window.bytes <= bytes - window.offset,
        "offload: bytes {} to {} of slot {}, which has {}", window.offset,
        window.offset + window.bytes, window.slot, bytes);
  check(disk::is_direct_aligned(window.offset, data, 0),
        "offload: slot {} at byte {}, expected an offset and memory aligned to {} bytes",
        window.slot, window.offset, disk::kDirectAlign);
}

bool SlotFile::is_in_the_way(const Operation& operation, const Window& window,
                             bool is_write) const {
  if (!operation.is_taken || operation.has_ended() || operation.window.slot != window.slot) {
    return false;
  }
  const int64_t begin = operation.window.offset;
  const bool overlaps =
      begin < window.offset + padded(window.bytes) && window.offset < begin + operation.bytes;
  return overlaps && (is_write || operation.is_write);
}

SlotFile::Ticket SlotFile::begin(const Window& window, char* data, bool is_write) {
  check_window(window, data);
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] {
    return std::none_of(operations_.begin(), operations_.end(), [&](const Operation& operation) {
      return is_in_the_way(operation, window, is_write);
    });
  });
  if (!is_write) check_kept(window.slot);
  const auto free = std::find_if(operations_.begin(), operations_.end(),
                                 [](const Operation& operation) { return !operation.is_taken; });
  check(free != operations_.end(),
        "offload: {} reads and writes have not been waited for, which is all there is room for",
        operations_.size());
  const int ticket = static_cast<int>(free - operations_.begin());
  const int64_t bytes = padded(window.bytes);
  *free = {.is_taken = true,
           .is_write = is_write,
           .window = window,
           .data = data,
           .file_offset = slot_offsets_[static_cast<size_t>(window.slot)] + window.offset,
           .bytes = bytes,
           .bytes_left = is_planned_ ? 0 : bytes};
  const Operation posted = *free;
  lock.unlock();
  if (!is_planned_) post(ticket, posted);
  return {ticket};
}

// Every thread gets whole blocks that lie side by side; the first ones may get one more.
void SlotFile::post(int ticket, const Operation& operation) {
  const int64_t num_blocks = (operation.bytes + disk_.block_size - 1) / disk_.block_size;
  const auto num_workers = static_cast<int64_t>(workers_.size());
  for (int64_t i = 0, begin = 0; i < num_workers; ++i) {
    const int64_t blocks = num_blocks / num_workers + (i < num_blocks % num_workers);
    const int64_t bytes = std::min(blocks * disk_.block_size, operation.bytes - begin);
    if (bytes == 0) break;
    workers_[static_cast<size_t>(i)]->post({.ticket = ticket,
                                            .is_write = operation.is_write,
                                            .offset = operation.file_offset + begin,
                                            .data = operation.data + begin,
                                            .bytes = bytes});
    begin += bytes;
  }
}

void SlotFile::end(const DiskBlock& block) {
  {
    const std::lock_guard lock(mutex_);
    Operation& operation = operations_[static_cast<size_t>(block.ticket)];
    operation.bytes_left -= block.bytes;
    const int64_t at = block.offset - operation.file_offset + operation.window.offset;
    // Of several the first byte's, in whatever order they came.
    if (block.error != 0 && (operation.error == 0 || at < operation.error_at)) {
      operation.error = block.error;
      operation.error_at = at;
      operation.broken = block.problem;
    }
    if (!operation.has_ended()) return;
    if (operation.is_write && operation.error != 0) {
      lost_.emplace(operation.window.slot, problem_of(operation));
    }
  }
  ended_.notify_all();
}

void SlotFile::check_kept(int slot) const {
  if (const auto lost = lost_.find(slot); lost != lost_.end()) fail("{}", lost->second);
}

bool SlotFile::has_ended(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  return operations_.at(static_cast<size_t>(ticket.index)).has_ended();
}

void SlotFile::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  Operation& operation = operations_.at(static_cast<size_t>(ticket.index));
  assert(operation.is_taken);
  ended_.wait(lock, [&] { return operation.has_ended(); });
  operation.is_taken = false;
  if (operation.error != 0) fail("{}", problem_of(operation));
}

void SlotFile::drain() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] {
    return std::all_of(operations_.begin(), operations_.end(), [](const Operation& operation) {
      return !operation.is_taken || operation.has_ended();
    });
  });
  if (!lost_.empty()) check_kept(lost_.begin()->first);
}

std::string SlotFile::problem_of(const Operation& operation) const {
  const std::string what = operation.error == DiskBlock::kBroken ? operation.broken
                           : operation.error == DiskBlock::kEndedEarly
                               ? "the file ended early"
                               : std::strerror(operation.error);
  return fmt::format(
      "offload: {}'{}': cannot {} slot {} at byte {}: {}; the disk or its file system "
      "failed, see the kernel's log (dmesg)",
      owner_.empty() ? "" : owner_ + ", ", base::printable(folder()),
      operation.is_write ? "write" : "read", operation.window.slot, operation.error_at, what);
}

DiskCounters SlotFile::counters() const {
  DiskCounters counters;
  for (const auto& worker : workers_) worker->add_to(counters);
  return counters;
}

std::string SlotFile::notice() const {
  if (is_direct_ || is_planned_) return "";
  return fmt::format(
      "offload: the file system of '{}' refuses O_DIRECT: the page cache is used, "
      "which takes host memory and is slower",
      base::printable(folder()));
}

}  // namespace fullshard::tiers
