// SPDX-License-Identifier: Apache-2.0
// Checkpoints from which training goes on exactly, whatever the number of ranks and the strategy:
//   save_checkpoint("run/checkpoints/" + checkpoint_name(100), sharded, optimizer, progress);
//   const auto last = last_checkpoint("run/checkpoints");
//   if (!last.folder.empty()) load_checkpoint(last.folder, sharded, optimizer);
// The files are drawn in docs/checkpoint_format.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fullshard/checkpoint/loop_progress.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/optimizer.h"
#include "fullshard/optim/torch/torch_optimizer.h"
#include "fullshard/stored/checkpoint_folder.h"
#include "fullshard/stored/last_checkpoint.h"

namespace fullshard {

// The newest whole checkpoint of a folder, and the newer ones that are not whole.
using LastCheckpoint = stored::LastCheckpoint;
// Of a folder: the checkpoint saved last among those that are complete. Not collective.
using stored::last_checkpoint;
// What a step's checkpoint is called: "step-000100".
using stored::checkpoint_name;

// Ranks that save under different names mean rank 0's: silently, with a warning, or not at all.
enum class TagValidation { ignore, warn, fail };
// "Ignore", "Warn" and "Fail" in any case, as DeepSpeed's checkpoint.tag_validation has them.
TagValidation tag_validation_of(const std::string& name);

struct CheckpointOptions {
  // Every host has a folder of this name on its own disk, and writes there what its ranks hold.
  bool is_node_local = false;
  // Older ones beside it, named by checkpoint_name(), of which only this many are kept, the new one
  // included; they are removed when it is in place. 0: all are kept.
  int num_kept = 0;
  std::vector<std::string> kept_names = {};  // these in any case
  // Without it a save that would leave out the states of the torch optimizer which steps the model
  // is an error.
  bool without_optimizer = false;
  // Only what is trained: of a model with adapters, those. Whoever loads it has given the frozen
  // parameters their values before, from where they came.
  bool leaves_out_frozen = false;
  TagValidation tag_validation = TagValidation::warn;
  // Called by all ranks with the folder while it has no name yet, before anything is written there:
  // files that are to be in the checkpoint beside its own, as the weights for other programs.
  std::function<void(const std::string& folder)> write_beside = {};
};

// Collective. Every rank writes what it owns, straight from its memory: weights in the optimizer's
// precision, the optimizer's states, buffers; nothing is gathered, and what several ranks hold is
// written once. Gradients are not saved: call it between steps.
//
// All ranks return when the checkpoint is on the disk, has its name, and `latest` beside it says
// so. What fails on one rank (no room on disk) fails on all; whatever was there before is there
// still, and nothing else is left behind. Ranks that have written vote once a second until all
// have: no collective lasts longer because a disk is slow, and a rank that is late is named
// after the time that the world waits for any other collective.
void save_checkpoint(const std::string& folder, const ShardedModel& model,
                     const Optimizer& optimizer, const Progress& progress,
                     const CheckpointOptions& options = {});
// The same for a torch optimizer over pieces: its states are copied and saved by pieces, so that
// they too go on under any number of ranks, and the counts of each parameter once. Optimizers whose
// states are not known here are an error that names them (optim/torch/torch_states.h).
void save_checkpoint(const std::string& folder, const ShardedModel& model,
                     const PieceParameters& pieces, const torch::optim::Optimizer& optimizer,
                     const Progress& progress, const CheckpointOptions& options = {});
// Without an optimizer's states.
void save_checkpoint(const std::string& folder, const ShardedModel& model, const Progress& progress,
                     const CheckpointOptions& options = {});

struct LoadedCheckpoint {
  Progress progress;
  int num_ranks = 1;          // that saved it
  bool restored_rng = false;  // by as many ranks as saved it: random numbers go on as they would
                              // have; others have no saved state to go on from
  int64_t bytes_read = 0;     // by this rank, without the manifest
  std::vector<std::string> notes = {};  // what could not be checked, and why: for people
};

// Collective. Into a model of any strategy, precision and number of ranks. Each rank reads the
// blocks in which its own pieces lie, and checks them; beside the model it holds 16 MiB. The model
// may be deferred.
//
// A folder that is incomplete or damaged, or of another model or optimizer, is an error of the kind
// input, the same on all ranks; all differences between the models are named. Manifest and sizes
// are checked before anything is changed. Should a block turn out to be damaged later, the model
// has no values, as a deferred one, and a forward says so.
//
// One that was saved without frozen parameters (CheckpointOptions::leaves_out_frozen) leaves those
// as they are: they have values already, or that is an error.
//
// The optimizer's lr, momentum and beta2 become what they were, and each rank's default CPU
// generator goes on where it was. Its base rate, which a schedule made from here on multiplies,
// becomes what it was, too; a schedule that was made before keeps the one that it found.
LoadedCheckpoint load_checkpoint(const std::string& folder, ShardedModel& model,
                                 Optimizer& optimizer);
// The torch optimizer's states, counts and learning rates become what they were; its other options
// are the caller's.
LoadedCheckpoint load_checkpoint(const std::string& folder, ShardedModel& model,
                                 const PieceParameters& pieces, torch::optim::Optimizer& optimizer);
// Weights and buffers only: states are not even read, and the generator is left alone.
LoadedCheckpoint load_checkpoint(const std::string& folder, ShardedModel& model);

}  // namespace fullshard
