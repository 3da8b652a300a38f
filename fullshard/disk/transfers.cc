// SPDX-License-Identifier: Apache-2.0
#include "fullshard/disk/transfers.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "fullshard/disk/fixed_queue.h"
#include "fullshard/disk/uring_transfers.h"

namespace fullshard::disk {
namespace {

class ThreadTransfers : public Transfers {
 public:
  explicit ThreadTransfers(int depth)
      : waiting_(static_cast<size_t>(depth)), ended_(static_cast<size_t>(depth)) {
    // Beyond that threads cost more than they hide: what is left waits in the queue.
    constexpr int kMostThreads = 32;
    for (int i = 0; i < std::min(depth, kMostThreads); ++i)
      threads_.emplace_back([this] { run(); });
  }

  ~ThreadTransfers() override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    begun_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void prepare(int64_t id, const Transfer& transfer) override {
    const std::lock_guard lock(mutex_);
    waiting_.push({id, transfer});
    ++num_prepared_;
  }

  void submit() override {
    {
      const std::lock_guard lock(mutex_);
      num_begun_ += std::exchange(num_prepared_, 0);
    }
    begun_.notify_all();
  }

  Ended wait() override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return !ended_.empty(); });
    const Ended ended = ended_.front();
    ended_.pop();
    return ended;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      begun_.wait(lock, [this] { return is_over_ || num_begun_ > 0; });
      if (num_begun_ == 0) return;
      const auto [id, transfer] = waiting_.front();
      waiting_.pop();
      --num_begun_;
      lock.unlock();
      const int64_t result = move_bytes(transfer);
      lock.lock();
      ended_.push({id, result});
      done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable done_;
  FixedQueue<std::pair<int64_t, Transfer>> waiting_;  // the last num_prepared_ have not begun
  FixedQueue<Ended> ended_;
  size_t num_prepared_ = 0;
  size_t num_begun_ = 0;  // of those that wait
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

int64_t move_bytes(const Transfer& transfer) {
  const auto bytes = static_cast<size_t>(transfer.bytes);
  const auto offset = static_cast<off_t>(transfer.offset);
  while (true) {
    const ssize_t moved = transfer.is_write
                              ? ::pwrite(transfer.descriptor, transfer.data, bytes, offset)
                              : ::pread(transfer.descriptor, transfer.data, bytes, offset);
    if (moved >= 0) return moved;
    if (errno != EINTR) return -errno;
  }
}

bool has_uring() {
  static const bool has = make_uring_transfers(1) != nullptr;
  return has;
}

std::unique_ptr<Transfers> make_transfers(int depth, TransferKind kind) {
  if (kind != TransferKind::threads && has_uring()) {
    if (auto transfers = make_uring_transfers(depth)) return transfers;
  }
  if (kind == TransferKind::uring) return nullptr;
  return std::make_unique<ThreadTransfers>(depth);
}

}  // namespace fullshard::disk
