// SPDX-License-Identifier: Apache-2.0
#include <cctype>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/device_snapshot.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/checkpoint/running_save.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/optim/torch/torch_states.h"

namespace fullshard {
namespace {

// A rank that has written waits no longer than this in one collective for one that has not.
constexpr auto kVoteEvery = std::chrono::seconds(1);

void save(const std::string& folder, const ShardedModel& model,
          const std::optional<optim::OptimizerStates>& states, const Progress& progress,
          const CheckpointOptions& options) {
  const auto device = checkpoint::make_device_snapshot(model.mesh().world().device(),
                                                       engine::EngineAccess::of(model).ledger());
  checkpoint::RunningSave save(folder, model, states, progress, options, false, device.get());
  while (!save.poll(kVoteEvery)) {
  }
}

}  // namespace

TagValidation tag_validation_of(const std::string& name) {
  std::string lower;
  for (const char letter : name) lower += static_cast<char>(std::tolower(letter));
  if (lower == "ignore") return TagValidation::ignore;
  if (lower == "fail") return TagValidation::fail;
  if (lower != "warn") {
    fail_as(ErrorKind::usage, "tag_validation: is '{}', expected Ignore, Warn or Fail", name);
  }
  return TagValidation::warn;
}

void save_checkpoint(const std::string& folder, const ShardedModel& model,
                     const Optimizer& optimizer, const Progress& progress,
                     const CheckpointOptions& options) {
  save(folder, model, optim::states_of(model, optimizer), progress, options);
}

void save_checkpoint(const std::string& folder, const ShardedModel& model,
                     const PieceParameters& pieces, const torch::optim::Optimizer& optimizer,
                     const Progress& progress, const CheckpointOptions& options) {
  std::optional<optim::OptimizerStates> states;
  engine::throw_alike(checkpoint::patient_ranks(model.mesh()),
                      engine::error_of([&] { states = optim::states_of(pieces, optimizer); }),
                      "save_checkpoint");
  save(folder, model, states, progress, options);
}

void save_checkpoint(const std::string& folder, const ShardedModel& model, const Progress& progress,
                     const CheckpointOptions& options) {
  save(folder, model, std::nullopt, progress, options);
}

}  // namespace fullshard
