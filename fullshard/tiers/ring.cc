// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/ring.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/disk/direct_buffer.h"

namespace fullshard::tiers {
namespace {

std::shared_ptr<char> ordinary_memory(int64_t bytes) {
  auto buffer = std::make_shared<disk::DirectBuffer>();
  buffer->reserve(bytes);
  return {buffer, buffer->data()};
}

RingOptions completed(RingOptions options, const SlotFile& file,
                      const std::vector<SlotFile::Window>& visits) {
  check(!visits.empty(), "offload: a ring over '{}' without anything to visit", file.folder());
  int64_t largest = 0;
  for (const auto& visit : visits) largest = std::max(largest, visit.bytes);
  if (options.buffer_bytes == 0) options.buffer_bytes = std::max<int64_t>(largest, 1);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  check(options.buffer_count >= 1, "offload: buffer_count is {}, expected at least 1",
        options.buffer_count);
  check(options.buffer_bytes > 0 && options.buffer_bytes <= kMost / options.buffer_count,
        "offload: {} buffers of {} bytes, expected sizes that fit memory", options.buffer_count,
        options.buffer_bytes);
  check(options.buffer_bytes >= largest,
        "offload: a buffer has {} bytes, but one of {} is visited; make buffer_size larger",
        options.buffer_bytes, largest);
  options.buffer_bytes = round_up(options.buffer_bytes, disk::kDirectAlign);
  return options;
}

double seconds_of(const auto& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Ring::Ring(SlotFile& file, std::vector<SlotFile::Window> visits, const RingOptions& options,
           const Allocate& allocate)
    : file_(file), visits_(std::move(visits)), options_(completed(options, file, visits_)) {
  memory_ = allocate ? allocate(bytes()) : ordinary_memory(bytes());
  check(disk::is_direct_aligned(0, memory_.get(), 0),
        "offload: memory of a ring is not aligned to {}", disk::kDirectAlign);
  buffers_.resize(static_cast<size_t>(options_.buffer_count));
  for (size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].data = memory_.get() + static_cast<int64_t>(i) * options_.buffer_bytes;
  }
}

Ring::~Ring() {
  for (Buffer& buffer : buffers_) {
    try {
      settle(buffer);
    } catch (const Error&) {  // nobody is left who would read it
    }
  }
}

const SlotFile::Window& Ring::window_of(int64_t turn) const {
  return visits_[static_cast<size_t>(turn % num_visits())];
}

Ring::Buffer* Ring::find(State state, int64_t turn) {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) {
    return buffer.state == state && buffer.turn == turn;
  });
  return found == buffers_.end() ? nullptr : &*found;
}

Ring::Buffer* Ring::idle_buffer() {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                  [](const Buffer& buffer) { return buffer.state == State::free; });
  return found == buffers_.end() ? nullptr : &*found;
}

bool Ring::overlaps(const Buffer& buffer, int64_t turn) const {
  const SlotFile::Window& one = window_of(buffer.turn);
  const SlotFile::Window& other = window_of(turn);
  return one.slot == other.slot && one.offset < other.offset + other.bytes &&
         other.offset < one.offset + one.bytes;
}

bool Ring::is_held(int64_t turn) const {
  return std::any_of(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) {
    return buffer.state == State::held && overlaps(buffer, turn);
  });
}

// Not while an earlier visit to the same bytes is before its end: it may change them.
bool Ring::may_read(int64_t turn) const {
  return std::none_of(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) {
    return buffer.state != State::free && overlaps(buffer, turn);
  });
}

void Ring::begin_read(Buffer& buffer, int64_t turn) {
  buffer.ticket = file_.read(window_of(turn), buffer.data);
  buffer.turn = turn;
  buffer.state = State::reading;
  counters_.bytes_read += window_of(turn).bytes;
}

void Ring::settle(Buffer& buffer) {
  const bool is_under_way = buffer.state == State::reading || buffer.state == State::writing;
  buffer.state = State::free;  // also when the disk has failed
  if (is_under_way) file_.wait(std::exchange(buffer.ticket, {}));
}

void Ring::wait_for_write(Buffer& buffer) {
  const int64_t bytes = window_of(buffer.turn).bytes;
  if (!file_.has_ended(buffer.ticket)) {
    ++counters_.num_write_waits;
    counters_.write_wait_bytes += bytes;
    counters_.write_wait_seconds += seconds_of([&] { settle(buffer); });
  } else {
    settle(buffer);
  }
}

void Ring::reap_writes() {
  for (Buffer& buffer : buffers_) {
    if (buffer.state == State::writing && file_.has_ended(buffer.ticket)) settle(buffer);
  }
}

void Ring::read_ahead() {
  if (!options_.reads_ahead) return;
  reap_writes();
  next_read_ = std::max(next_read_, next_turn_);
  while (Buffer* buffer = idle_buffer()) {
    if (!may_read(next_read_)) return;
    begin_read(*buffer, next_read_++);
  }
}

// A free one, or the one whose write began first.
Ring::Buffer& Ring::buffer_for(int64_t turn) {
  reap_writes();
  if (Buffer* buffer = idle_buffer()) return *buffer;
  Buffer* oldest = nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.state == State::writing && (oldest == nullptr || buffer.turn < oldest->turn)) {
      oldest = &buffer;
    }
  }
  check(oldest != nullptr, "offload: visit {} of a ring whose {} buffers are all held; release one",
        turn % num_visits(), options_.buffer_count);
  wait_for_write(*oldest);
  return *oldest;
}

void Ring::wait_for_writes_to(int64_t turn) {
  for (Buffer& buffer : buffers_) {
    if (buffer.state == State::writing && overlaps(buffer, turn)) wait_for_write(buffer);
  }
}

std::span<char> Ring::acquire(int64_t visit) {
  check(visit == next_turn_ % num_visits(), "offload: visit {} of a ring, expected {}", visit,
        next_turn_ % num_visits());
  Buffer* buffer = find(State::reading, next_turn_);
  if (buffer == nullptr) {
    check(!is_held(next_turn_),
          "offload: visit {} of a ring is to bytes that are still held; release them", visit);
    wait_for_writes_to(next_turn_);
    buffer = &buffer_for(next_turn_);
    begin_read(*buffer, next_turn_);
    next_read_ = std::max(next_read_, next_turn_ + 1);
  }
  read_ahead();
  const SlotFile::Window& window = window_of(next_turn_);
  if (file_.has_ended(buffer->ticket)) {
    settle(*buffer);
  } else {
    ++counters_.num_read_waits;
    counters_.read_wait_bytes += window.bytes;
    counters_.read_wait_seconds += seconds_of([&] { settle(*buffer); });
  }
  buffer->state = State::held;
  counters_.bytes_visited += window.bytes;
  ++next_turn_;
  read_ahead();
  return {buffer->data, static_cast<size_t>(window.bytes)};
}

void Ring::release(int64_t visit, bool is_changed) {
  const auto held = std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) {
    return buffer.state == State::held && buffer.turn % num_visits() == visit;
  });
  check(held != buffers_.end(), "offload: visit {} of a ring is released, but not held", visit);
  held->state = State::free;
  if (is_changed) {
    const SlotFile::Window& window = window_of(held->turn);
    held->ticket = file_.write(window, held->data);
    held->state = State::writing;
    counters_.bytes_written += window.bytes;
    if (!options_.writes_behind) wait_for_write(*held);
  }
  read_ahead();
}

void Ring::flush() {
  for (Buffer& buffer : buffers_) {
    if (buffer.state == State::writing) wait_for_write(buffer);
  }
}

void Ring::restart() {
  const bool is_any_held = std::any_of(buffers_.begin(), buffers_.end(), [](const Buffer& buffer) {
    return buffer.state == State::held;
  });
  check(!is_any_held, "offload: a ring is restarted while some of it is held; release it first");
  flush();
  for (Buffer& buffer : buffers_) settle(buffer);
  next_turn_ = next_read_ = 0;
}

void Ring::abandon() {
  for (Buffer& buffer : buffers_) {
    if (buffer.state == State::held) buffer.state = State::free;
  }
  restart();
}

}  // namespace fullshard::tiers
