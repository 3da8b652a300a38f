// SPDX-License-Identifier: Apache-2.0
// The disk tier of one rank: a private file cut into slots, each read and written as a whole or in
// windows, while the program does something else.
//
//   slot 0        slot 1              slot 2
//   |bytes   |pad|bytes            |p|bytes  |pad|      every slot begins at a multiple of 4 KiB
//
// A slot that was never written reads as zeros. Parts of slots may lie in files of others (link()),
// which are read where they are.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/tiers/disk_settings.h"
#include "fullshard/tiers/disk_worker.h"
#include "fullshard/tiers/unnamed_file.h"

namespace fullshard::tiers {

struct SlotFileOptions {
  std::string folder{};
  std::vector<int64_t> slot_bytes{};
  DiskSettings disk{};
  int num_tickets = 64;  // reads and writes that are not waited for yet, at most
  std::string owner{};   // "rank 3", for messages
  // Empty, the default: by io_uring or by threads. Tests put a disk that fails here.
  DiskWorker::MakeTransfers make_transfers = {};
  // Planned: sizes only; no disk is touched, and reads and writes end at once.
  FileSpace space = FileSpace::reserved;
  // Of a planned one: what would be read or written, by number, and when its end is waited for.
  std::function<void(int64_t number, int64_t bytes, bool is_write)> on_planned{};
  std::function<void(int64_t number)> on_planned_wait{};
};

// Bytes of a file that somebody else has written.
struct ForeignBytes {
  int descriptor = -1;
  int64_t offset = 0;
};

class SlotFile {
 public:
  // What read() and write() give; wait() takes it, once.
  struct Ticket {
    int index = -1;
    explicit operator bool() const { return index >= 0; }
  };
  // Part of a slot. `offset` is a multiple of 4 KiB; `bytes` are rounded up to one, so the memory
  // has room for that.
  struct Window {
    int slot = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  // Reserves the space; an Error (kind no_fit or input) that names the folder where that fails.
  explicit SlotFile(SlotFileOptions options);
  // Waits for what the disk is doing; what has not begun is dropped, since nobody can read it.
  ~SlotFile();
  SlotFile(const SlotFile&) = delete;
  SlotFile& operator=(const SlotFile&) = delete;

  // One thread calls these. The memory is aligned to 4 KiB and stays until wait() has returned.
  // What overlaps in one slot happens in the order in which it was asked for.
  Ticket read(const Window& window, char* data);
  Ticket write(const Window& window, const char* data);
  bool has_ended(Ticket ticket);
  // Throws what the disk said, with the owner, the folder, the operation and the slot. A slot that
  // could not be written holds nothing that anybody should use: reads of it, and drain(), throw the
  // same from then on, whoever waited for the write.
  void wait(Ticket ticket);

  // Waits until nothing is under way: what is mapped may be read and written.
  void drain();

  // One more, with its space reserved; an error as of the constructor. Not while something is under
  // way.
  int add_slot(int64_t bytes);
  // From now on reads of that part find the bytes of `source`, as they are then; writes of it are
  // refused, and who maps the slot does not see them. The descriptor may be closed. Parts begin
  // anywhere, and do not overlap others than themselves. Not while something is under way.
  void link(const Window& part, const ForeignBytes& source);
  // Before a part of a sparse file is written through map_slot().
  void reserve_part(const Window& part);
  // The slot as memory, through the page cache: for those who want all of it and have no room for
  // it. What goes past the cache sees it and is seen by it, but not at the same time. Unmapped with
  // the last handle, and usable as long.
  std::shared_ptr<char> map_slot(int slot) const;

  int num_slots() const { return static_cast<int>(slot_bytes_.size()); }
  int64_t slot_bytes(int slot) const { return slot_bytes_.at(static_cast<size_t>(slot)); }
  int64_t bytes() const { return file_.bytes(); }  // of the disk, for the ledger
  const std::string& folder() const { return file_.folder(); }
  DiskCounters counters() const;
  // For the user, once: empty, or why the page cache is used after all.
  std::string notice() const;

 private:
  struct Operation {
    bool is_taken = false;
    bool is_write = false;
    int64_t number = 0;  // of a planned one
    Window window{};
    char* data = nullptr;
    int64_t file_offset = 0;
    int64_t bytes = 0;       // rounded up, where it is of the file's own
    int64_t bytes_left = 0;  // to be moved
    int error = 0;
    int64_t error_at = 0;  // byte of the slot
    std::string broken{};  // what the machinery said, where it was not the disk

    bool has_ended() const { return bytes_left == 0; }
  };

  Ticket begin(const Window& window, char* data, bool is_write);
  bool is_in_the_way(const Operation& operation, const Window& window, bool is_write) const;
  void check_part(const Window& part) const;
  void check_window(const Window& window, const char* data) const;
  // A stretch of a read or write that lies in one file, one after the other.
  struct Stretch {
    int64_t begin = 0;  // of the window
    int64_t bytes = 0;
    int descriptor = -1;      // below 0: the file's own
    int64_t file_offset = 0;  // of its file
  };
  std::vector<Stretch> stretches_of(const Window& window) const;
  bool is_linked(const Window& window) const;
  void post(int ticket, const Operation& operation, const std::vector<Stretch>& stretches);
  int own_copy_of(int descriptor);
  void end(const DiskBlock& block);
  std::string problem_of(const Operation& operation) const;
  void check_kept(int slot) const;

  std::vector<int64_t> slot_bytes_;
  std::vector<int64_t> slot_offsets_;
  const DiskSettings disk_;
  const std::string owner_;
  const bool is_planned_;
  const std::function<void(int64_t, int64_t, bool)> on_planned_;
  const std::function<void(int64_t)> on_planned_wait_;
  int64_t num_planned_ = 0;
  UnnamedFile file_;
  struct Link {
    int64_t bytes = 0;
    ForeignBytes source{};
  };
  std::vector<std::map<int64_t, Link>> links_;                  // of each slot, by where they begin
  std::map<std::pair<uint64_t, uint64_t>, int> foreign_files_;  // by device and inode

  std::atomic<bool> is_direct_{false};

  mutable std::mutex mutex_;  // of the operations
  std::condition_variable ended_;
  std::vector<Operation> operations_;                 // by ticket
  std::map<int, std::string> lost_;                   // slots that a write failed on, and why
  std::vector<std::unique_ptr<DiskWorker>> workers_;  // last: they end before what they use
};

}  // namespace fullshard::tiers
