// SPDX-License-Identifier: Apache-2.0
// One save of a checkpoint, from its beginning to its name, while background threads write.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/device_snapshot.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/checkpoint/save_plan.h"
#include "fullshard/optim/optimizer_states.h"
#include "fullshard/stored/blocks/block_writer.h"
#include "fullshard/stored/manifest.h"

namespace fullshard::checkpoint {

// Collective: made, polled and destroyed by all ranks at the same points, on the thread that
// trains. The model must not change until poll() says that all is done, or settle() was called.
class RunningSave {
 public:
  // `is_async`: forwards run meanwhile, which may change buffers; an accelerator then begins at
  // once to copy everything. `device` is null for the CPU, and outlives this.
  RunningSave(const std::string& folder, const ShardedModel& model,
              const std::optional<optim::OptimizerStates>& states, const Progress& progress,
              const CheckpointOptions& options, bool is_async, DeviceSnapshot* device);
  // Unfinished, it stops the writing; what is left of the folder goes with the next save there.
  ~RunningSave();
  RunningSave(const RunningSave&) = delete;
  RunningSave& operator=(const RunningSave&) = delete;

  // Waits up to `patience` for this rank's writing, then votes; when all ranks have written, the
  // checkpoint gets its name. True: it is in place. Throws what went wrong on any rank.
  bool poll(std::chrono::milliseconds patience);

  // Copies what this rank has not written yet; afterwards the model may change. On an accelerator
  // the caller's stream waits for the copies, not the host. Not collective.
  void settle(stored::BufferPool& pool);

 private:
  enum class Vote { writing, written, failed };

  std::vector<stored::BlockFile> own_files(const SavePlan& plan, bool is_async);
  void begin_files(std::vector<stored::BlockFile> files, bool is_async);
  void start();
  Vote own_vote(std::chrono::milliseconds patience);
  Vote common_vote(Vote own) const;
  void stop();
  void conclude(const std::optional<Error>& own);  // agrees on the end, good or bad
  void commit();
  std::string own_report() const;
  stored::Manifest complete_manifest(const std::vector<std::string>& reports) const;
  Communicator everyone() const { return patient_ranks(model_.mesh()); }

  ShardedModel model_;
  CheckpointOptions options_;
  DeviceSnapshot* device_;
  stored::CheckpointFolder folder_;
  bool leads_ = false;         // makes the folder and writes the manifest
  stored::Manifest manifest_;  // leaders'; the writer's from start() to stop()
  std::string rng_;
  std::map<std::string, optim::StateCounts>
      counts_;                      // of the parameters that this rank has pieces of
  std::vector<std::string> names_;  // of the own files
  std::vector<at::Tensor> held_;    // what the writer looks at
  std::unique_ptr<stored::BlockWriter> files_;
  std::optional<Error> error_;  // of the writer
  bool is_over_ = false;        // in place, or given up

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_written_ = false;  // or failed
  std::thread writer_;
};

}  // namespace fullshard::checkpoint
