// SPDX-License-Identifier: Apache-2.0
// The folder of a training run, up to its first step: who may write there, which checkpoint the run
// resumes from, and what becomes of an earlier run there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/base/launcher_environment.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/config/plan.h"
#include "fullshard/config/run_options.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/report/records/run_lock.h"
#include "fullshard/stored/found_checkpoint.h"
#include "fullshard/stored/training_progress.h"

namespace fullshard::worker {

class TrainFolder {
 public:
  TrainFolder(const RunOptions& options, const World& world,
              const base::LauncherEnvironment& launcher);

  // Rank 0: locks it, and closes the record of a run that died there.
  void claim();
  // Collective: where to resume, if anywhere. A restarted group resumes by itself.
  void choose_checkpoint();
  // Collective; call it on all ranks when that could not be loaded. True if it is damaged and this
  // run has another one, which is resumed() then; false if a checkpoint was named.
  bool take_older();
  // Rank 0: whether a run may begin here.
  void check() const;
  // Collective: whether checkpoints can be saved there, on the disk of every host or on one that
  // all of them see.
  void check_checkpoints(const ShardedModel& model, bool is_node_local) const;
  // Collective: call it when nothing can fail any more for which the earlier run would be needed.
  // With node-local checkpoints the first rank of each host removes those of its disk; all else is
  // rank 0's. Keeps the configuration as the user wrote it, for reports about the run.
  void clear(const std::string& config_file, const Plan& plan) const;

  const std::optional<stored::FoundCheckpoint>& resumed() const { return resumed_; }
  // Collective, after clear(): whether what --keep-best has kept is here.
  bool holds_best() const;
  // The step of other programs' checkpoints is known when they are loaded.
  Progress progress() const;

 private:
  std::string checkpoints() const;
  void clear_other_hosts(bool removes) const;
  std::vector<std::string> read_paths() const;
  // Collective: what fails on one rank fails on all.
  void if_so(bool is_so, const std::function<void()>& act) const;
  // The answer of rank 0.
  bool is_so_for_all(bool is_so) const;
  bool goes_on_here() const;
  bool replaces() const;

  const RunOptions& options_;
  const World& world_;
  const base::LauncherEnvironment& launcher_;
  std::optional<report::RunLock> lock_;  // rank 0's
  std::optional<stored::FoundCheckpoint> resumed_;
  bool may_take_older_ = false;
  std::vector<std::string> passed_over_;  // damaged ones, by their names
};

}  // namespace fullshard::worker
