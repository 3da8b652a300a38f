// SPDX-License-Identifier: Apache-2.0
// One thread that moves parts of a file in blocks and keeps several blocks under way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fullshard/disk/fixed_queue.h"
#include "fullshard/disk/transfers.h"
#include "fullshard/tiers/disk_settings.h"
#include "fullshard/tiers/unnamed_file.h"

namespace fullshard::tiers {

struct DiskPart {
  int ticket = -1;
  bool is_write = false;
  int64_t offset = 0;  // of the file
  char* data = nullptr;
  int64_t bytes = 0;
  int descriptor = -1;  // of another file, which is only read; below 0: the worker's own
};

// A block of a part that is done with, well or badly.
struct DiskBlock {
  static constexpr int kEndedEarly = -1;  // a read found less than the file was made for
  static constexpr int kBroken = -2;      // not the disk: `problem` says what

  int ticket = -1;
  const char* data = nullptr;
  int64_t bytes = 0;
  int error = 0;  // 0, an errno, or one of the above
  std::string_view problem{};
};

// What the disk was asked for; each setting of DiskSettings shows in one of them.
struct DiskCounters {
  int64_t bytes_read = 0;  // padding included
  int64_t bytes_written = 0;
  int64_t num_requests = 0;
  int64_t largest_request = 0;  // bytes: block_size
  int64_t num_submits = 0;      // single_submit: as many as requests
  int64_t num_overlapping =
      0;                       // times of asking while others were under way; 0: overlap_events off
  int64_t peak_under_way = 0;  // of one thread: queue_depth
  std::vector<int64_t> bytes_of_thread{};  // num_threads of them
};

class DiskWorker {
 public:
  using MakeTransfers = std::function<std::unique_ptr<disk::Transfers>(int depth)>;

  // `is_direct` is common to all workers of a file, and becomes false when it refuses that.
  // `ended` is called on this worker's thread, without its lock.
  DiskWorker(const UnnamedFile& file, std::atomic<bool>& is_direct, const DiskSettings& disk,
             int most_parts, const MakeTransfers& make_transfers,
             std::function<void(const DiskBlock&)> ended);
  // Waits for what is under way, and drops what has not begun.
  ~DiskWorker();
  DiskWorker(const DiskWorker&) = delete;
  DiskWorker& operator=(const DiskWorker&) = delete;

  // Any thread; at most `most_parts` are with the worker at a time.
  void post(const DiskPart& part);
  void add_to(DiskCounters& counters) const;

 private:
  struct Request {
    DiskPart left{};          // what is still to be moved
    int64_t block_bytes = 0;  // with what has been moved already
    bool is_direct = false;
  };

  void run();
  bool step();
  void ask();
  std::optional<DiskPart> take_block();
  void prepare(int request);
  void submit();
  void finish(int request, int64_t result);
  void end(int request, int error);
  void give_up(std::string problem);

  const UnnamedFile& file_;
  std::atomic<bool>& is_direct_;
  const DiskSettings disk_;
  const std::function<void(const DiskBlock&)> ended_;
  std::unique_ptr<disk::Transfers> transfers_;
  std::vector<Request> requests_;
  std::vector<int> free_requests_;
  int64_t num_under_way_ = 0;
  std::string problem_;  // empty: all is well

  mutable std::mutex mutex_;  // of all below
  std::condition_variable posted_;
  disk::FixedQueue<DiskPart> parts_;
  bool is_over_ = false;
  DiskCounters counters_;
  std::thread thread_;
};

}  // namespace fullshard::tiers
