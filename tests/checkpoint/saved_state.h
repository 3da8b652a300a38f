// SPDX-License-Identifier: Apache-2.0
// Whole states of small training runs, put together from all ranks, to compare runs by.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/optim/adamw.h"
#include "tests/checkpoint/small_model.h"

namespace fullshard::testing {

// "weights of NAME" and "exp_avg of NAME": every element of every tensor.
struct WholeState {
  std::map<std::string, at::Tensor> tensors;
  std::vector<float> losses;  // of rank 0
  int64_t optimizer_steps = 0;
};

// One rank of a run.
struct RankRun {
  RankRun(const World& world, const ShardOptions& options, bool is_deferred);

  // Steps [first, last) with batches that depend on step and rank.
  void train(int first, int last, WholeState* state = nullptr);
  // Adds what this rank owns.
  void collect(WholeState& state, std::mutex& mutex) const;

  World world;
  SmallModel model;
  ShardedModel sharded;
  AdamW optimizer;
};

// Trains some steps, saves, and gives what was saved.
WholeState train_and_save(const Way& way, const std::string& folder, int steps,
                          const CheckpointOptions& options = {});
// What a new run under `way` holds after loading.
WholeState load_whole(const Way& way, const std::string& folder);

// Equal to the bit; what one of them keeps in another dtype is rounded first.
void expect_same_state(const WholeState& actual, const WholeState& expected);

// The error that `body` throws; a failure when it throws none.
Error error_of_call(const std::function<void()>& body);

// Folders of checkpoints in a folder of their own, removed with all files in them.
class CheckpointsFolder {
 public:
  CheckpointsFolder();
  ~CheckpointsFolder();
  CheckpointsFolder(const CheckpointsFolder&) = delete;
  CheckpointsFolder& operator=(const CheckpointsFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Way plain_way(int ranks, Strategy strategy = Strategy::full_shard);

}  // namespace fullshard::testing
