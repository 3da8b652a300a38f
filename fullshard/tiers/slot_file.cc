// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/slot_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <iterator>
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
      is_planned_(options.space == FileSpace::planned),
      on_planned_(std::move(options.on_planned)),
      on_planned_wait_(std::move(options.on_planned_wait)),
      file_(options.folder, slot_offsets_.back(), options.space),
      links_(slot_bytes_.size()),
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

SlotFile::~SlotFile() {
  workers_.clear();  // they read what is closed here
  for (const auto& [file, descriptor] : foreign_files_) ::close(descriptor);
}

int SlotFile::add_slot(int64_t bytes) {
  auto grown = slot_bytes_;
  grown.push_back(bytes);
  auto offsets = offsets_of(grown);
  const bool was_empty = file_.bytes() == 0;  // nobody could try it yet
  file_.grow(offsets.back());
  if (was_empty) is_direct_ = file_.direct() >= 0;
  slot_bytes_ = std::move(grown);
  slot_offsets_ = std::move(offsets);
  links_.resize(slot_bytes_.size());
  return num_slots() - 1;
}

// One for each file, however many of its tensors are linked.
int SlotFile::own_copy_of(int descriptor) {
  struct stat facts {};
  check(::fstat(descriptor, &facts) == 0, "offload: a file that is to be read where it is: {}",
        std::strerror(errno));
  const auto [found, is_new] = foreign_files_.try_emplace({facts.st_dev, facts.st_ino}, -1);
  if (!is_new) return found->second;
  found->second = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (found->second >= 0) return found->second;
  foreign_files_.erase(found);
  fail("offload: a file that is to be read where it is: {}", std::strerror(errno));
}

void SlotFile::link(const Window& part, const ForeignBytes& source) {
  check_part(part);
  if (part.bytes == 0) return;
  auto& links = links_[static_cast<size_t>(part.slot)];
  const auto same = links.find(part.offset);
  if (same != links.end() && same->second.bytes == part.bytes) links.erase(same);
  const auto behind = links.lower_bound(part.offset);
  const bool meets_next = behind != links.end() && behind->first < part.offset + part.bytes;
  const bool meets_last = behind != links.begin() &&
                          std::prev(behind)->first + std::prev(behind)->second.bytes > part.offset;
  check(!meets_next && !meets_last, "offload: bytes {} to {} of slot {} are linked already",
        part.offset, part.offset + part.bytes, part.slot);
  const int descriptor = is_planned_ ? -1 : own_copy_of(source.descriptor);
  links.emplace(part.offset, Link{part.bytes, {descriptor, source.offset}});
}

void SlotFile::reserve_part(const Window& part) {
  check_part(part);
  file_.reserve_part(slot_offsets_[static_cast<size_t>(part.slot)] + part.offset, part.bytes);
}

bool SlotFile::is_linked(const Window& window) const {
  const auto& links = links_[static_cast<size_t>(window.slot)];
  const auto behind = links.lower_bound(window.offset + window.bytes);
  if (behind == links.begin()) return false;
  const auto& [begin, link] = *std::prev(behind);
  return begin + link.bytes > window.offset;
}

// What lies between links is the file's own.
std::vector<SlotFile::Stretch> SlotFile::stretches_of(const Window& window) const {
  const int64_t slot_offset = slot_offsets_[static_cast<size_t>(window.slot)];
  const int64_t end = window.offset + window.bytes;
  std::vector<Stretch> stretches;
  const auto add = [&](int64_t begin, int64_t bytes, int descriptor, int64_t file_offset) {
    if (bytes > 0) stretches.push_back({begin - window.offset, bytes, descriptor, file_offset});
  };
  int64_t at = window.offset;
  for (const auto& [begin, link] : links_[static_cast<size_t>(window.slot)]) {
    const int64_t first = std::max(begin, at), last = std::min(begin + link.bytes, end);
    if (first >= last) continue;
    add(at, first - at, -1, slot_offset + at);
    add(first, last - first, link.source.descriptor, link.source.offset + first - begin);
    at = last;
  }
  add(at, end - at, -1, slot_offset + at);
  return stretches;
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

void SlotFile::check_part(const Window& part) const {
  check(part.slot >= 0 && part.slot < num_slots(), "offload: no slot {}, there are {}", part.slot,
        num_slots());
  const int64_t bytes = slot_bytes(part.slot);
  check(part.offset >= 0 && part.bytes >= 0 && part.offset <= bytes &&
            part.bytes <= bytes - part.offset,
        "offload: bytes {} to {} of slot {}, which has {}", part.offset, part.offset + part.bytes,
        part.slot, bytes);
}

void SlotFile::check_window(const Window& window, const char* data) const {
  check_part(window);
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
  const bool is_linked_part = is_linked(window);
  check(!is_write || !is_linked_part,
        "offload: slot {} at byte {} lies in somebody else's file, which is not written to",
        window.slot, window.offset);
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
  const int64_t bytes = is_linked_part ? window.bytes : padded(window.bytes);
  *free = {.is_taken = true,
           .is_write = is_write,
           .number = ++num_planned_,
           .window = window,
           .data = data,
           .file_offset = slot_offsets_[static_cast<size_t>(window.slot)] + window.offset,
           .bytes = bytes,
           .bytes_left = is_planned_ ? 0 : bytes};
  const Operation posted = *free;
  lock.unlock();
  if (is_planned_ && on_planned_) on_planned_(posted.number, bytes, is_write);
  if (is_planned_ || bytes == 0) return {ticket};
  if (is_linked_part) {
    post(ticket, posted, stretches_of(window));
  } else {
    post(ticket, posted, {{0, bytes, -1, posted.file_offset}});
  }
  return {ticket};
}

// Of a stretch every thread gets whole blocks that lie side by side; the first ones may get one
// more.
void SlotFile::post(int ticket, const Operation& operation, const std::vector<Stretch>& stretches) {
  const auto num_workers = static_cast<int64_t>(workers_.size());
  for (const Stretch& stretch : stretches) {
    const int64_t num_blocks = (stretch.bytes + disk_.block_size - 1) / disk_.block_size;
    for (int64_t i = 0, begin = 0; i < num_workers; ++i) {
      const int64_t blocks = num_blocks / num_workers + (i < num_blocks % num_workers);
      const int64_t bytes = std::min(blocks * disk_.block_size, stretch.bytes - begin);
      if (bytes == 0) break;
      workers_[static_cast<size_t>(i)]->post({.ticket = ticket,
                                              .is_write = operation.is_write,
                                              .offset = stretch.file_offset + begin,
                                              .data = operation.data + stretch.begin + begin,
                                              .bytes = bytes,
                                              .descriptor = stretch.descriptor});
      begin += bytes;
    }
  }
}

void SlotFile::end(const DiskBlock& block) {
  {
    const std::lock_guard lock(mutex_);
    Operation& operation = operations_[static_cast<size_t>(block.ticket)];
    operation.bytes_left -= block.bytes;
    const int64_t at = block.data - operation.data + operation.window.offset;
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
  if (is_planned_ && on_planned_wait_) on_planned_wait_(operation.number);
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
