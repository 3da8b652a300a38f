// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/device_snapshot.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <optional>

#include "fullshard/memory/recorded_event.h"
#include "fullshard/stored/blocks/block_writer.h"

namespace fullshard::checkpoint {
namespace {

class StreamCopies : public SnapshotCopies {
 public:
  explicit StreamCopies(at::Device device)
      : device_(device), guard_(device.type()), stream_(guard_.getNewStream(device)) {}

  ~StreamCopies() override {
    try {
      guard_.synchronizeStream(stream_);
    } catch (...) {  // the device has failed: nothing is under way any more
    }
  }
  StreamCopies(const StreamCopies&) = delete;
  StreamCopies& operator=(const StreamCopies&) = delete;

  void follow_training() override { order(guard_.getStream(device_), stream_); }
  void hold_training() override { order(stream_, guard_.getStream(device_)); }

  Mark mark() override {
    const memory::RecordedEvent event(stream_);
    const std::lock_guard lock(mutex_);
    events_.emplace(++last_, event);
    return last_;
  }

  void wait(Mark mark) override {
    const auto event = event_of(mark);
    if (!event) return;
    const c10::DeviceGuard device(device_);  // a thread without one would make a context on GPU 0
    event->wait();
    const std::lock_guard lock(mutex_);
    events_.erase(events_.begin(), events_.upper_bound(mark));
  }

 protected:
  // What `values` computes takes memory of this stream, which may have it again behind the copy.
  void copy(const Values& values, char* target) override {
    const c10::StreamGuard on_stream(stream_);
    const at::NoGradGuard no_grad;
    const at::Tensor on_device = values();
    at::from_blob(target, on_device.sizes(), on_device.options().device(at::kCPU))
        .copy_(on_device, /*non_blocking=*/true);
  }

 private:
  void order(const c10::Stream& first, const c10::Stream& second) const {
    memory::RecordedEvent(first).hold(second);
  }

  // Nothing: that and all before it was waited for already.
  std::optional<memory::RecordedEvent> event_of(Mark mark) const {
    const std::lock_guard lock(mutex_);
    const auto found = events_.find(mark);
    return found == events_.end() ? std::nullopt : std::optional(found->second);
  }

  const at::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream stream_;
  mutable std::mutex mutex_;
  std::map<Mark, memory::RecordedEvent> events_;
  Mark last_ = 0;
};

// From torch's cache of pinned memory.
stored::BufferPool::Source pinned_memory(std::shared_ptr<Ledger> ledger) {
  return [ledger = std::move(ledger)](int64_t bytes) {
    auto memory = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    auto* const data = static_cast<char*>(memory.data_ptr());
    ledger->hold(tiers::Purpose::workspace, tiers::Tier::host, bytes);
    return std::shared_ptr<char>(data, [ledger, memory = std::move(memory), bytes](char*) {
      ledger->drop(tiers::Purpose::workspace, tiers::Tier::host, bytes);
    });
  };
}

}  // namespace

void SnapshotCopies::begin(const Values& values, int64_t bytes, char* target) {
  copy(values, target);
  ++num_copies_;
  copied_bytes_ += bytes;
}

std::unique_ptr<DeviceSnapshot> make_device_snapshot(at::Device device,
                                                     const std::shared_ptr<Ledger>& ledger) {
  if (device.is_cpu()) return nullptr;
  auto snapshot = std::make_unique<DeviceSnapshot>();
  snapshot->copies = std::make_unique<StreamCopies>(device);
  snapshot->windows =
      std::make_unique<stored::BufferPool>(stored::kWriteBytes, pinned_memory(ledger));
  return snapshot;
}

}  // namespace fullshard::checkpoint
