#include "fullshard/stored/transfers.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "fullshard/stored/uring_transfers.h"

namespace fullshard {
namespace {

class ThreadTransfers : public Transfers {
 public:
  explicit ThreadTransfers(int depth) {
    for (int i = 0; i < depth; ++i) threads_.emplace_back([this] { run(); });
  }

  ~ThreadTransfers() override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    begun_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void begin(int64_t id, const Transfer& transfer) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.emplace_back(id, transfer);
    }
    begun_.notify_one();
  }

  Ended wait() override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return !ended_.empty(); });
    const Ended ended = ended_.front();
    ended_.pop_front();
    return ended;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      begun_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const auto [id, transfer] = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const int64_t result = move_bytes(transfer);
      lock.lock();
      ended_.push_back({id, result});
      done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable done_;
  std::deque<std::pair<int64_t, Transfer>> waiting_;
  std::deque<Ended> ended_;
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

}  // namespace fullshard
