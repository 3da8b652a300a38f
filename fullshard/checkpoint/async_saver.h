// Saving beside training: a copy of what this rank owns is taken, and written while training goes
// on.
//
//   AsyncSaver saver;
//   for (…) { …; stepper.step(); saver.poll(); if (due) saver.save(folder, sharded, optimizer,
//   progress); } saver.finish();
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "fullshard/checkpoint/checkpoint.h"

namespace fullshard {

class RunningSave;
class Snapshot;

// Belongs to the thread that trains. All calls are collective; nothing happens at other times.
class AsyncSaver {
 public:
  AsyncSaver();
  // Unfinished, the save is given up; nothing is thrown.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Takes the copy and returns; the checkpoint has its name after some poll(), or finish(). One
  // save at a time: an earlier one is finished first. An error of that is thrown here.
  void save(const std::string& folder, const ShardedModel& model, const Optimizer& optimizer,
            const Progress& progress, const CheckpointOptions& options = {});

  // After every step. Asks all ranks whether they have written, without waiting, and gives the
  // checkpoint its name when they have. What went wrong with the writing is thrown, on all ranks.
  void poll();
  // Returns when nothing is under way.
  void finish();

  bool is_saving() const { return running_ != nullptr; }
  int64_t snapshot_bytes() const;  // of the copy, which is kept for the next save

 private:
  void advance(std::chrono::milliseconds patience);

  std::unique_ptr<Snapshot> snapshot_;
  std::unique_ptr<RunningSave> running_;
};

}  // namespace fullshard
