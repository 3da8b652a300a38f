// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/load_plan.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/checkpoint/rng_state.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/new_values.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/engine/whole_masters.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/optim/torch/torch_states.h"
#include "fullshard/stored/manifest_checksum.h"

namespace fullshard {
namespace {

constexpr const char* kLoad = "load_checkpoint";

// Those that a rank needs by that rank; for going on with training, all of them by somebody.
void check_files_for(const stored::Manifest& manifest, const std::string& folder,
                     const checkpoint::LoadPlan& plan, const World& world, bool is_whole) {
  plan.check_files();
  if (!is_whole || manifest.is_node_local) return;
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const bool is_mine = static_cast<int>(i % static_cast<size_t>(world.size())) == world.rank();
    if (is_mine) stored::check_file(manifest.files[i], folder);
  }
}

void check_has_frozen(const stored::Manifest& manifest, const std::string& folder,
                      const engine::Engine& engine) {
  formats::check_input(
      !manifest.leaves_out_frozen || engine.has_values(),
      "{}: holds only what was trained, and the frozen parameters of this model have no values "
      "yet; load the weights that they were saved beside first",
      folder);
}

// Hosts with folders of their own must mean the same save.
void check_same_save(const Communicator& everyone, const stored::Manifest& manifest,
                     const std::string& folder) {
  if (!manifest.is_node_local) return;
  const auto times = engine::gather_texts(everyone, std::to_string(manifest.saved_at), kLoad);
  for (size_t rank = 1; rank < times.size(); ++rank) {
    formats::check_input(
        times[rank] == times[0],
        "{}: rank 0 and rank {} see the folders of two different saves; on each host, take "
        "the one that all of them have",
        folder, rank);
  }
}

void restore_optimizer(const stored::StoredOptimizer& stored, Optimizer& optimizer) {
  optimizer.restore_num_steps(stored.num_steps);
  if (!stored.base_lrs.empty()) optimizer.set_lr(stored.base_lrs[0]);
  optimizer.set_scheduled_lr(stored.lrs.at(0));
  if (stored.momentum && optimizer.has_momentum()) optimizer.set_momentum(*stored.momentum);
  if (stored.beta2 && optimizer.has_beta2()) optimizer.set_beta2(*stored.beta2);
}

// Of the parameters that have any.
std::map<std::string, optim::StateCounts> counts_in(const stored::Manifest& manifest) {
  std::map<std::string, optim::StateCounts> counts;
  for (const auto& tensor : manifest.tensors) {
    for (const auto& name : tensor.names) {
      if (tensor.counts) counts[name] = *tensor.counts;
    }
  }
  return counts;
}

// What else an optimizer takes over, once its states are there.
using Restore = std::function<void(const stored::Manifest& manifest)>;

// `states` is null: weights only.
LoadedCheckpoint load(const std::string& folder, ShardedModel& model,
                      const optim::OptimizerStates* states, const Restore& restore) {
  auto& engine = engine::EngineAccess::of(model);
  const auto& world = engine.mesh().world();
  const auto everyone = checkpoint::patient_ranks(engine.mesh());
  const engine::WholeMasters whole(engine);  // the plan says where in them values go
  stored::Manifest manifest;
  std::optional<checkpoint::LoadPlan> plan;
  engine::throw_alike(everyone, engine::error_of([&] {
                        manifest = stored::read_manifest(folder);
                        check_has_frozen(manifest, folder, engine);
                        plan.emplace(manifest, folder, engine, states);
                        check_files_for(manifest, folder, *plan, world, states != nullptr);
                      }),
                      kLoad);
  check_same_save(everyone, manifest, folder);

  LoadedCheckpoint loaded;
  loaded.progress = manifest.progress;
  loaded.num_ranks = manifest.num_ranks;
  if (!manifest.has_checksum()) loaded.notes.emplace_back(stored::kNoManifestChecksum);
  loaded.restored_rng = states != nullptr && manifest.num_ranks == world.size();
  engine::replace_values(engine, kLoad, [&] {
    loaded.bytes_read = stored::read_block_files(plan->take_files());
    plan->finish();
    if (states != nullptr) restore(manifest);
    if (loaded.restored_rng) {
      checkpoint::restore_rng_state(manifest.rng.at(world.rank()), world.device());
    }
  });
  return loaded;
}

}  // namespace

LoadedCheckpoint load_checkpoint(const std::string& folder, ShardedModel& model,
                                 Optimizer& optimizer) {
  const optim::OptimizerStates states = optim::states_of(model, optimizer);
  return load(folder, model, &states, [&](const stored::Manifest& manifest) {
    restore_optimizer(*manifest.optimizer, optimizer);
  });
}

LoadedCheckpoint load_checkpoint(const std::string& folder, ShardedModel& model,
                                 const PieceParameters& pieces,
                                 torch::optim::Optimizer& optimizer) {
  std::optional<optim::OptimizerStates> states;
  engine::throw_alike(checkpoint::patient_ranks(model.mesh()),
                      engine::error_of([&] { states = optim::empty_states_of(pieces, optimizer); }),
                      kLoad);
  return load(folder, model, &*states, [&](const stored::Manifest& manifest) {
    states->counts = counts_in(manifest);
    states->lrs = manifest.optimizer->lrs;
    optim::restore_states(pieces, *states, optimizer);
  });
}

LoadedCheckpoint load_checkpoint(const std::string& folder, ShardedModel& model) {
  return load(folder, model, nullptr, {});
}

}  // namespace fullshard
