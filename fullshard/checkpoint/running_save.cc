// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/running_save.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/base/file_kind.h"
#include "fullshard/checkpoint/rng_state.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/stored/last_checkpoint.h"
#include "fullshard/stored/progress_json.h"
#include "fullshard/stored/side_files.h"

namespace fullshard::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kSave = "save_checkpoint";

int64_t milliseconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string folder_above(const std::string& folder) {
  const size_t slash = folder.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : folder.substr(0, slash);
}

std::string name_of(const std::string& folder) { return folder.substr(folder.rfind('/') + 1); }

// Rank 0's name where names differ; what lies above it may be another path on another host.
std::string agreed_folder(std::string folder, const Communicator& everyone,
                          TagValidation validation) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const size_t begin = folder.rfind('/') + 1;  // 0 where there is none
  const auto names = engine::gather_texts(everyone, folder.substr(begin), kSave);
  for (size_t rank = 1; rank < names.size(); ++rank) {
    if (names[rank] == names[0]) continue;
    const auto what =
        fmt::format("rank {} saves as '{}' and rank 0 as '{}'", rank, names[rank], names[0]);
    check(validation != TagValidation::fail,
          "save_checkpoint: {}; all ranks must save under one name (tag_validation)", what);
    if (validation == TagValidation::warn && everyone.rank() == 0) {
      spdlog::warn("save_checkpoint: {}; rank 0's name is taken", what);
    }
    break;
  }
  return folder.substr(0, begin) + names[0];
}

// Of a model that a torch optimizer steps, whose states nobody but the caller can give.
void check_leaves_nothing_out(const engine::Engine& engine,
                              const std::optional<optim::OptimizerStates>& states,
                              const CheckpointOptions& options) {
  if (states || options.without_optimizer || !engine.is_stepped_by_torch()) return;
  fail_as(ErrorKind::usage,
          "save_checkpoint: a torch optimizer steps this model, and its states would not be in the "
          "checkpoint; save with save_checkpoint(folder, sharded, pieces, optimizer, progress), or "
          "set CheckpointOptions::without_optimizer to leave them out");
}

// Ranks with pieces of the same parameter have counted the same steps.
void add_counts(const json& report, size_t rank, std::vector<stored::ManifestTensor>& tensors) {
  for (auto& tensor : tensors) {
    const auto found = report.find(tensor.names.front());
    if (found == report.end()) continue;
    const auto counts = found->get<optim::StateCounts>();
    check(!tensor.counts || *tensor.counts == counts,
          "save_checkpoint: rank {} has counted other steps of '{}' than a rank before it; the "
          "optimizers of the ranks differ",
          rank, tensor.names.front());
    tensor.counts = counts;
  }
}

// The folder was there and could be written when the save began: what fails later is no invalid
// input, whatever the system calls it.
std::optional<Error> while_running(const std::optional<Error>& error) {
  if (!error || error->kind() != ErrorKind::input) return error;
  return Error(error->what());
}

// Of a file that cannot be made: the system does not say that the ranks' disks are not one.
std::optional<Error> with_hint(const std::optional<Error>& error, const std::string& part) {
  if (!error || base::is_folder(part)) return error;
  return Error(fmt::format(
      "{}; rank 0 made this folder, and here it is not there: save where all hosts see the same "
      "disk, or on every host's own (--node-local, CheckpointOptions::is_node_local)",
      error->what()));
}

}  // namespace

RunningSave::RunningSave(const std::string& folder, const ShardedModel& model,
                         const std::optional<optim::OptimizerStates>& states,
                         const Progress& progress, const CheckpointOptions& options, bool is_async,
                         DeviceSnapshot* device)
    : model_(model),
      options_(options),
      device_(device),
      folder_(agreed_folder(folder, patient_ranks(model.mesh()), options.tag_validation)) {
  const auto problem = engine::error_of([&] {
    auto& engine = engine::EngineAccess::of(model_);
    engine.settle_updates();
    engine.check_registered();
    check(engine.has_values(),
          "save_checkpoint: the model was built deferred and its parameters have no values yet; "
          "call load_weights, load_checkpoint or initialise_weights first");
    check_leaves_nothing_out(engine, states, options_);
    const SavePlan plan(engine, states ? &*states : nullptr, options_.is_node_local,
                        options_.leaves_out_frozen);
    if (states) counts_ = states->counts;
    leads_ = plan.writers().writes_whole(engine.mesh().world().rank());
    if (leads_) {
      manifest_ = plan.manifest();
      manifest_.progress = progress;
      (void)stored::progress_json(progress);  // says now what is wrong with it
      folder_.begin();
    }
    rng_ = rng_state_text(engine.mesh().world().device());
    begin_files(own_files(plan, is_async), is_async);
  });
  // Nobody writes before the folder is there, and everybody has come.
  try {
    engine::throw_alike(everyone(), problem, kSave);
    if (options_.write_beside) options_.write_beside(folder_.part());
  } catch (...) {
    is_over_ = true;
    if (leads_) folder_.abandon();
    throw;
  }
  start();
}

RunningSave::~RunningSave() {
  stop();
  if (leads_ && !is_over_) folder_.abandon();
}

std::vector<stored::BlockFile> RunningSave::own_files(const SavePlan& plan, bool is_async) {
  std::vector<stored::BlockFile> files;
  for (auto& file : plan.own_files(is_async, device_ ? device_->copies.get() : nullptr)) {
    names_.push_back(file.name);
    held_.insert(held_.end(), file.held.begin(), file.held.end());
    files.push_back({fmt::format("{}/{}", folder_.part(), file.name), std::move(file.content)});
  }
  return files;
}

void RunningSave::begin_files(std::vector<stored::BlockFile> files, bool is_async) {
  model_.mesh().world().check_sound();
  stored::DeviceContent content;
  if (device_ != nullptr) {
    device_->copies->follow_training();
    content = {device_->copies.get(), device_->windows.get()};
  }
  files_ = std::make_unique<stored::BlockWriter>(std::move(files), content);
  if (device_ != nullptr && is_async) files_->begin_snapshot();
}

void RunningSave::start() {
  writer_ = std::thread([this] {
    auto problem = engine::error_of([&] {
      files_->run();
      if (leads_) manifest_.side_files = stored::sum_side_files(folder_.part(), manifest_);
      // A device is read while files are written: what it gave after a failure has no name yet.
      model_.mesh().world().check_sound();
    });
    if (!leads_ && !options_.is_node_local) problem = with_hint(problem, folder_.part());
    const std::lock_guard lock(mutex_);
    error_ = std::move(problem);
    has_written_ = true;
    changed_.notify_all();
  });
}

void RunningSave::stop() {
  if (files_) files_->stop();
  if (writer_.joinable()) writer_.join();
}

void RunningSave::settle(stored::BufferPool& pool) {
  if (device_ == nullptr) {
    files_->settle(pool);
  } else {
    files_->await_disk_content();
    device_->copies->hold_training();
  }
}

RunningSave::Vote RunningSave::own_vote(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return has_written_; });
  if (!has_written_) return Vote::writing;
  return error_ ? Vote::failed : Vote::written;
}

// The worst of all ranks'.
RunningSave::Vote RunningSave::common_vote(Vote own) const {
  auto votes = at::empty({everyone().size()}, at::kLong);
  const auto vote = at::full({1}, static_cast<int64_t>(own), at::kLong);
  everyone().all_gather(votes, vote, kSave).wait();
  Vote common = Vote::written;
  for (int rank = 0; rank < everyone().size(); ++rank) {
    const auto other = static_cast<Vote>(votes.const_data_ptr<int64_t>()[rank]);
    if (other == Vote::failed) return Vote::failed;
    if (other == Vote::writing) common = Vote::writing;
  }
  return common;
}

bool RunningSave::poll(std::chrono::milliseconds patience) {
  check(!is_over_, "save_checkpoint: {} is over already", folder_.path());
  const auto own = own_vote(patience);
  const auto common = common_vote(own);
  if (common == Vote::writing) return false;
  stop();
  if (common == Vote::failed) {
    // What stopping did to the writer is not what went wrong.
    conclude(own == Vote::failed ? error_ : std::nullopt);
  }
  commit();
  return true;
}

void RunningSave::conclude(const std::optional<Error>& own) {
  is_over_ = true;
  try {
    engine::throw_alike(everyone(), while_running(own), kSave);
  } catch (...) {
    if (leads_) folder_.abandon();  // nobody writes there any more
    throw;
  }
}

std::string RunningSave::own_report() const {
  json checksums = json::object();
  for (size_t i = 0; i < names_.size(); ++i)
    checksums[names_[i]] = stored::checksums_text(files_->checksums()[i]);
  return json{{"checksums", std::move(checksums)},
              {"rng", rng_},
              {"counts", counts_},
              {"saved_at", milliseconds_now()}}
      .dump();
}

stored::Manifest RunningSave::complete_manifest(const std::vector<std::string>& reports) const {
  auto manifest = manifest_;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const auto report = json::parse(reports[rank]);
    manifest.rng.push_back(report["rng"].get<std::string>());
    add_counts(report["counts"], rank, manifest.tensors);
    if (rank == 0) manifest.saved_at = report["saved_at"].get<int64_t>();
    for (auto& file : manifest.files) {
      if (file.rank != static_cast<int>(rank)) continue;
      file.checksums =
          *stored::parse_checksums(report["checksums"].at(file.name).get<std::string>());
    }
  }
  return manifest;
}

void RunningSave::commit() {
  const auto reports = engine::gather_texts(everyone(), own_report(), kSave);
  std::optional<Error> problem;
  if (leads_) {
    problem = engine::error_of([&] {
      auto manifest = complete_manifest(reports);
      manifest.save_number = stored::next_save_number(folder_above(folder_.path()));
      const auto text = stored::manifest_text(manifest);
      // What cannot be read again is worth nothing: find out now.
      (void)stored::parse_manifest(text, folder_.path());
      folder_.commit(text);
    });
  }
  conclude(problem);
  if (options_.num_kept <= 0) return;
  // Only now: a host on whose disk it is not in place can go on from an older one alone.
  problem.reset();
  if (leads_) {
    problem = engine::error_of([&] {
      auto kept_names = options_.kept_names;
      kept_names.push_back(name_of(folder_.path()));
      stored::remove_old_checkpoints(folder_above(folder_.path()), options_.num_kept, kept_names);
    });
  }
  engine::throw_alike(everyone(), while_running(problem), kSave);
}

}  // namespace fullshard::checkpoint
