// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/train_folder.h"

#include <fmt/format.h>

#include "fullshard/base/file_kind.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/checkpoint/shared_folder.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/report/records/run_start.h"
#include "fullshard/stored/checkpoint_folder.h"
#include "fullshard/stored/last_checkpoint.h"
#include "fullshard/stored/manifest.h"
#include "fullshard/train/run/kept_config.h"
#include "fullshard/train/run/replaced_run.h"
#include "fullshard/train/run/resume_choice.h"
#include "fullshard/train/run/run_agreement.h"

namespace fullshard::worker {

TrainFolder::TrainFolder(const RunOptions& options, const World& world,
                         const base::LauncherEnvironment& launcher)
    : options_(options), world_(world), launcher_(launcher) {}

void TrainFolder::claim() {
  lock_.emplace(report::RunLock::inherited_or_new(options_.output, launcher_));
  if (!lock_->warning().empty()) base::say(fmt::format("warning: {}\n", lock_->warning()));
  report::close_dead_run(options_.output, *lock_);
  report::remove_unfinished_records(options_.output);
}

void TrainFolder::choose_checkpoint() {
  // Ranks with different settings would not even make the same calls below.
  train::check_alike(world_.communicator(), {{"--resume", options_.resume}});
  const bool is_named = options_.resume != "none" && options_.resume != "auto";
  // Restarted ranks resume, but not a run that their job was to replace.
  const bool goes_on = launcher_.is_restart() && options_.save_every.is_set() &&
                       !is_so_for_all(train::ReplacedRun(options_.output).is_there());
  if (options_.resume == "none" && !goes_on) return;
  const train::ResumeChoice choice =
      train::choose_checkpoint(world_, is_named ? options_.resume : "auto", checkpoints());
  for (const std::string& reason : choice.skipped) {
    base::say(fmt::format("warning: checkpoint skipped: {}\n", reason));
  }
  if (!choice.checkpoint && world_.rank() == 0) {
    base::say("note: no checkpoint to resume; starting from the beginning\n");
  }
  resumed_ = choice.checkpoint;
  may_take_older_ = !is_named;
}

bool TrainFolder::take_older() {
  if (!may_take_older_ || !resumed_) return false;
  const std::string damaged = resumed_->path();
  const std::string damage = train::damage_in(world_, damaged);
  if (damage.empty()) return false;
  passed_over_.push_back(damaged.substr(damaged.rfind('/') + 1));
  const train::ResumeChoice choice =
      train::choose_checkpoint(world_, "auto", checkpoints(), passed_over_);
  if (!choice.checkpoint) return false;
  if (world_.rank() == 0) {
    base::say(fmt::format("warning: checkpoint skipped: {}: {}; resuming from {} instead\n",
                          passed_over_.back(), damage, choice.checkpoint->path()));
  }
  resumed_ = choice.checkpoint;
  return true;
}

void TrainFolder::check() const {
  report::check_run_start(options_.output,
                          {.overwrites = options_.overwrite,
                           .resumes = goes_on_here(),
                           .may_begin_again = options_.resume == "auto" || launcher_.is_restart()});
  if (!launcher_.is_restart()) train::ReplacedRun(options_.output).intend(replaces());
}

void TrainFolder::check_checkpoints(const ShardedModel& model, bool is_node_local) const {
  const auto own = engine::error_of([&] { stored::check_may_hold_checkpoints(checkpoints()); });
  engine::throw_alike(world_.communicator(), own, "output");
  if (!is_node_local) checkpoint::check_folder_is_shared(checkpoints(), model);
}

void TrainFolder::clear(const std::string& config_file, const Plan& plan) const {
  train::ReplacedRun before(options_.output);
  const bool is_first_start = !launcher_.is_restart() || before.is_there();
  const bool removes = replaces() && is_first_start;
  if (plan.checkpoint.node_local.value) clear_other_hosts(removes);
  if_so(world_.rank() == 0 && !goes_on_here(), [&] {
    before.remove(removes, read_paths());
    train::keep_config(options_.output, config_file, plan);
  });
}

// Before rank 0 removes its mark: an interruption here leaves nothing behind.
void TrainFolder::clear_other_hosts(bool removes) const {
  const bool is_first_of_other = world_.local_rank() == 0 && world_.rank() != 0;
  if_so(is_so_for_all(removes) && is_first_of_other,
        [&] { train::ReplacedRun(options_.output).remove_checkpoints(read_paths()); });
}

std::vector<std::string> TrainFolder::read_paths() const {
  std::vector<std::string> read = {options_.model, options_.tokenizer, options_.adapter};
  read.insert(read.end(), options_.data.begin(), options_.data.end());
  read.insert(read.end(), options_.eval_data.begin(), options_.eval_data.end());
  if (resumed_) read.push_back(resumed_->path());
  return read;
}

bool TrainFolder::holds_best() const {
  return is_so_for_all(base::is_folder(options_.output + "/best"));
}

Progress TrainFolder::progress() const {
  if (!resumed_ || !resumed_->is_own()) return {};
  return stored::read_manifest(resumed_->path()).progress;
}

std::string TrainFolder::checkpoints() const { return options_.output + "/checkpoints"; }

bool TrainFolder::is_so_for_all(bool is_so) const {
  const auto answer = world_.communicator().allocate(1, at::kLong);
  answer.fill_(is_so ? 1 : 0);
  world_.communicator().broadcast(answer, 0, "output").wait();
  return answer.item<int64_t>() != 0;
}

void TrainFolder::if_so(bool is_so, const std::function<void()>& act) const {
  engine::throw_alike(world_.communicator(), is_so ? engine::error_of(act) : std::nullopt,
                      "output");
}

// A checkpoint from elsewhere begins a run here, as a model would.
bool TrainFolder::goes_on_here() const {
  return resumed_ && stored::is_of_run(resumed_->path(), options_.output);
}

bool TrainFolder::replaces() const { return options_.overwrite && !goes_on_here(); }

}  // namespace fullshard::worker
