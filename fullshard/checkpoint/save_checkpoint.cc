#include <cctype>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/device_snapshot.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/checkpoint/running_save.h"
#include "fullshard/optim/torch_states.h"
#include "fullshard/shard/agreement.h"
#include "fullshard/shard/engine.h"

namespace fullshard {
namespace {

// A rank that has written waits no longer than this in one collective for one that has not.
constexpr auto kVoteEvery = std::chrono::seconds(1);

void save(const std::string& folder, const ShardedModel& model,
          const std::optional<OptimizerStates>& states, const Progress& progress,
          const CheckpointOptions& options) {
  const auto device = make_device_snapshot(model.mesh().world().device(), model.engine().ledger());
  RunningSave save(folder, model, states, progress, options, false, device.get());
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
  save(folder, model, states_of(model, optimizer), progress, options);
}

void save_checkpoint(const std::string& folder, const ShardedModel& model,
                     const PieceParameters& pieces, const torch::optim::Optimizer& optimizer,
                     const Progress& progress, const CheckpointOptions& options) {
  std::optional<OptimizerStates> states;
  throw_alike(patient_ranks(model.mesh()), error_of([&] { states = states_of(pieces, optimizer); }),
              "save_checkpoint");
  save(folder, model, states, progress, options);
}

void save_checkpoint(const std::string& folder, const ShardedModel& model, const Progress& progress,
                     const CheckpointOptions& options) {
  save(folder, model, std::nullopt, progress, options);
}

}  // namespace fullshard
