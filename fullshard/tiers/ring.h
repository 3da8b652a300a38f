// SPDX-License-Identifier: Apache-2.0
// Windows of a slot file, visited in one order again and again through a few buffers: what comes
// next is read ahead, what was changed is written behind.
//
//   for (int64_t i = 0; i < ring.num_visits(); ++i) {
//     update(ring.acquire(i));  // waits for this window's read, if it has not come yet
//     ring.release(i, true);    // changed: it is written while the next ones are used
//   }
//   ring.flush();               // what was changed is on the disk
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fullshard/tiers/slot_file.h"

namespace fullshard::tiers {

struct RingOptions {
  int64_t buffer_count = 4;
  int64_t buffer_bytes = 0;   // 0: as the largest visit; rounded up to 4 KiB
  bool reads_ahead = true;    // pipeline_read
  bool writes_behind = true;  // pipeline_write; off: release() waits
};

struct RingCounters {
  int64_t bytes_read = 0;     // of visits, without padding; also ahead, and when that was in vain
  int64_t bytes_visited = 0;  // of them acquired: the same in every pass, whenever reads began
  int64_t bytes_written = 0;
  // Times that the caller had to wait, with the bytes it waited for.
  int64_t num_read_waits = 0;
  int64_t read_wait_bytes = 0;
  double read_wait_seconds = 0;
  int64_t num_write_waits = 0;  // for a buffer that was still being written, or for flush()
  int64_t write_wait_bytes = 0;
  double write_wait_seconds = 0;
};

// One thread, that of its file, which outlives it. Nothing is allocated after construction.
class Ring {
 public:
  // Gives memory aligned to 4 KiB that is freed with its last handle: pinned memory beside a GPU.
  using Allocate = std::function<std::shared_ptr<char>(int64_t bytes)>;

  // Without an allocator: ordinary memory. The file has a ticket for every buffer.
  Ring(SlotFile& file, std::vector<SlotFile::Window> visits, const RingOptions& options,
       const Allocate& allocate = {});
  // Waits for what is under way; errors of the disk are lost here, flush() tells them.
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  int64_t num_visits() const { return static_cast<int64_t>(visits_.size()); }
  int64_t bytes() const { return options_.buffer_count * options_.buffer_bytes; }

  // Begins to read what is visited next, without waiting.
  void read_ahead();
  // In order: 0, 1, …, the last, and 0 again. At most buffer_count are held at a time.
  std::span<char> acquire(int64_t visit);
  // In any order.
  void release(int64_t visit, bool is_changed);
  // Waits until everything that was changed is on the disk.
  void flush();
  // The next visit is the first again, and nothing is known of what was read ahead: for when
  // somebody else has written to the file. Nothing may be held.
  void restart();
  // The same after an error: what is held is let go, unwritten.
  void abandon();

  const RingCounters& counters() const { return counters_; }

 private:
  enum class State { free, reading, held, writing };
  struct Buffer {
    State state = State::free;
    int64_t turn = 0;  // of the visit that it is for
    SlotFile::Ticket ticket{};
    char* data = nullptr;
  };

  const SlotFile::Window& window_of(int64_t turn) const;
  Buffer* find(State state, int64_t turn);
  Buffer* idle_buffer();
  Buffer& buffer_for(int64_t turn);
  bool overlaps(const Buffer& buffer, int64_t turn) const;
  bool is_held(int64_t turn) const;
  bool may_read(int64_t turn) const;
  void begin_read(Buffer& buffer, int64_t turn);
  void wait_for_write(Buffer& buffer);
  void wait_for_writes_to(int64_t turn);
  void reap_writes();
  void settle(Buffer& buffer);

  SlotFile& file_;
  const std::vector<SlotFile::Window> visits_;
  RingOptions options_;
  std::shared_ptr<char> memory_;
  std::vector<Buffer> buffers_;
  int64_t next_turn_ = 0;  // to be acquired; counts on over the passes
  int64_t next_read_ = 0;  // to be read ahead, not below next_turn_
  RingCounters counters_;
};

}  // namespace fullshard::tiers
