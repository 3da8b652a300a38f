// SPDX-License-Identifier: Apache-2.0
// How an accelerator's values reach the files of a checkpoint: each byte is copied once, on a
// stream beside training, into a window of pinned memory, and written to the file from there.
//
//   training   | step 4 | forward, backward of 5   |‖ step 5       ‖ waits for the last copy only
//   copies              | window | window | window |
//   files                        | write  | write  | write  | …    each behind its window's copy
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "fullshard/memory/ledger.h"
#include "fullshard/stored/blocks/buffer_pool.h"
#include "fullshard/stored/blocks/device_copies.h"

namespace fullshard::checkpoint {

class SnapshotCopies : public stored::DeviceCopies {
 public:
  // By the thread that trains. Copies begun from here on find what its stream holds now.
  virtual void follow_training() = 0;
  // By the thread that trains. What it issues from here on runs after all copies begun so far; the
  // host does not wait.
  virtual void hold_training() = 0;

  // Any thread. Begins to copy `bytes` of what `values` gives; that is called once, and may
  // compute.
  using Values = std::function<at::Tensor()>;
  void begin(const Values& values, int64_t bytes, char* target);

  int64_t num_copies() const { return num_copies_; }
  int64_t copied_bytes() const { return copied_bytes_; }

 protected:
  virtual void copy(const Values& values, char* target) = 0;

 private:
  std::atomic<int64_t> num_copies_{0};
  std::atomic<int64_t> copied_bytes_{0};
};

// Kept from save to save, so that only the first one pins memory.
struct DeviceSnapshot {
  std::unique_ptr<SnapshotCopies> copies;
  std::unique_ptr<stored::BufferPool> windows;  // of kWriteBytes
};

// Null for the CPU, whose files are written from where values are. The windows are entered in the
// ledger, as workspace of the host.
std::unique_ptr<DeviceSnapshot> make_device_snapshot(at::Device device,
                                                     const std::shared_ptr<Ledger>& ledger);

}  // namespace fullshard::checkpoint
