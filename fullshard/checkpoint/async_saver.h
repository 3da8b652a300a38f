// SPDX-License-Identifier: Apache-2.0
// Saving beside training: what this rank owns is written while training goes on.
//
//   AsyncSaver saver;
//   for (…) {
//     loss.backward();
//     stepper.step();  // waits until what it changes is copied
//     saver.poll();
//     if (due) saver.start(folder, sharded, optimizer, progress);
//   }
//   saver.finish();
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "fullshard/checkpoint/checkpoint.h"

namespace fullshard::checkpoint {
class RunningSave;
struct DeviceSnapshot;
}  // namespace fullshard::checkpoint

namespace fullshard::stored {
class BufferPool;
}  // namespace fullshard::stored

namespace fullshard {

// Belongs to the thread that trains. All calls are collective; nothing happens at other times.
class AsyncSaver {
 public:
  AsyncSaver();
  // With copies and windows of the caller's in place of those of the model's device.
  explicit AsyncSaver(std::unique_ptr<checkpoint::DeviceSnapshot> device);
  // Unfinished, the save is given up; nothing is thrown.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Begins to write and returns; the checkpoint has its name after some poll(), or finish(). One
  // save at a time: an earlier one is finished first. An error of that is thrown here.
  //
  // Masters and states are written from where they are. Whatever changes them next, as the
  // optimizer's step, copies before what was not written by then, often nothing. Buffers of the
  // model, which a forward may change, are copied at once. An accelerator copies everything, into
  // pinned memory beside training, and its next step waits for that.
  void start(const std::string& folder, const ShardedModel& model, const Optimizer& optimizer,
             const Progress& progress, const CheckpointOptions& options = {});
  // The same copies now, for callers that measure how long they take, or that change masters by
  // ways of their own. Not collective; nothing to do where nothing is being written.
  void settle();
  // Both: everything is copied before it returns.
  void save(const std::string& folder, const ShardedModel& model, const Optimizer& optimizer,
            const Progress& progress, const CheckpointOptions& options = {});

  // After every step. Asks all ranks whether they have written, without waiting, and gives the
  // checkpoint its name when they have. What went wrong with the writing is thrown, on all ranks.
  void poll();
  // Returns when nothing is under way.
  void finish();

  bool is_saving() const { return running_ != nullptr; }
  int64_t copied_bytes() const;  // memory for copies, which is kept for the next save

 private:
  void advance(std::chrono::milliseconds patience);
  void end();

  std::unique_ptr<stored::BufferPool> copies_;  // for the CPU
  std::unique_ptr<checkpoint::DeviceSnapshot>
      device_;  // made for the first model that is on an accelerator
  class Reader;

  std::unique_ptr<checkpoint::RunningSave> running_;
  std::unique_ptr<Reader> reader_;  // of what running_ writes
};

}  // namespace fullshard
