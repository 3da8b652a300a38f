// SPDX-License-Identifier: Apache-2.0
// An accelerator that copies late: nothing begun is copied before training is held for it, or
// before the test lets it go.
#pragma once

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fullshard/checkpoint/device_snapshot.h"
#include "fullshard/stored/blocks/block_writer.h"

namespace fullshard::testing {

class FakeCopies : public checkpoint::SnapshotCopies {
 public:
  explicit FakeCopies(bool is_late) : is_late_(is_late) {}

  void follow_training() override { ++num_followed; }
  void hold_training() override {
    ++num_held;
    copy_all();
  }
  Mark mark() override {
    const std::lock_guard lock(mutex_);
    return num_begun_;
  }
  void wait(Mark mark) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_done_ >= mark || !is_late_; });
    copy_pending();
  }
  void be_late(bool is_late) {
    const std::lock_guard lock(mutex_);
    is_late_ = is_late;
    changed_.notify_all();
  }

  int num_followed = 0;
  int num_held = 0;

 protected:
  void copy(const Values& values, char* target) override {
    const std::lock_guard lock(mutex_);
    pending_.emplace_back(values(), target);
    ++num_begun_;
  }

 private:
  void copy_all() {
    const std::lock_guard lock(mutex_);
    copy_pending();
    changed_.notify_all();
  }
  void copy_pending() {
    for (; !pending_.empty(); pending_.pop_front()) {
      const auto& [values, target] = pending_.front();
      std::memcpy(target, values.data_ptr(), values.nbytes());
      ++num_done_;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_late_;
  std::deque<std::pair<at::Tensor, char*>> pending_;
  int64_t num_begun_ = 0;
  int64_t num_done_ = 0;
};

// With windows of ordinary memory, which notes what it was asked for.
struct FakeDevice {
  explicit FakeDevice(bool is_late) {
    auto fake = std::make_unique<FakeCopies>(is_late);
    copies = fake.get();
    snapshot->copies = std::move(fake);
    snapshot->windows =
        std::make_unique<stored::BufferPool>(stored::kWriteBytes, [asked = asked](int64_t bytes) {
          static std::mutex mutex;  // workers ask at once
          {
            const std::lock_guard lock(mutex);
            asked->push_back(bytes);
          }
          void* memory = std::aligned_alloc(disk::kDirectAlign, static_cast<size_t>(bytes));
          return std::shared_ptr<char>(static_cast<char*>(memory), &std::free);
        });
  }

  std::unique_ptr<checkpoint::DeviceSnapshot> snapshot =
      std::make_unique<checkpoint::DeviceSnapshot>();
  FakeCopies* copies = nullptr;
  std::shared_ptr<std::vector<int64_t>> asked = std::make_shared<std::vector<int64_t>>();
};

}  // namespace fullshard::testing
