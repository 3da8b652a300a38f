// Checkpoints from which training goes on exactly, whatever the number of ranks and the strategy:
//   save_checkpoint("run/checkpoints/" + checkpoint_name(100), sharded, optimizer, progress);
//   const auto last = last_checkpoint("run/checkpoints");
//   if (!last.folder.empty()) load_checkpoint(last.folder, sharded, optimizer);
// The files are drawn in docs/checkpoint_format.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/checkpoint/progress.h"
#include "fullshard/optim/optimizer.h"
#include "fullshard/shard/sharded_model.h"
#include "fullshard/stored/checkpoint_folder.h"
#include "fullshard/stored/last_checkpoint.h"

namespace fullshard {

struct CheckpointOptions {
  // Every host has a folder of this name on its own disk, and writes there what its ranks hold.
  bool is_node_local = false;
  // Older ones beside it, named by checkpoint_name(), of which only this many are kept, the new one
  // included; they are removed when it is in place. 0: all are kept.
  int num_kept = 0;
  std::vector<std::string> kept_names = {};  // these in any case
};

// Collective. Every rank writes what it owns, straight from its memory: weights in the optimizer's
// precision, the optimizer's states, buffers; nothing is gathered, and what several ranks hold is
// written once. Gradients are not saved: call it between steps.
//
// All ranks return when the checkpoint is on the disk, has its name, and `latest` beside it says
// so. What fails on one rank (no room on disk) fails on all; whatever was there before is there
// still, and nothing else is left behind. Ranks that have written vote once a second until all
// have: no collective lasts longer because a disk is slow, and a rank that does not come is named
// after the time that the world waits for any other collective.
void save_checkpoint(const std::string& folder, const ShardedModel& model,
                     const Optimizer& optimizer, const Progress& progress,
                     const CheckpointOptions& options = {});
// Without an optimizer's states.
void save_checkpoint(const std::string& folder, const ShardedModel& model, const Progress& progress,
                     const CheckpointOptions& options = {});

struct LoadedCheckpoint {
  Progress progress;
  int num_ranks = 1;          // that saved it
  bool restored_rng = false;  // by as many ranks as saved it: random numbers go on as they would
                              // have; others have no saved state to go on from
  int64_t bytes_read = 0;     // by this rank, without the manifest
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
// The optimizer's lr, momentum and beta2 become what they were, and each rank's default CPU
// generator goes on where it was.
LoadedCheckpoint load_checkpoint(const std::string& folder, ShardedModel& model,
                                 Optimizer& optimizer);
// Weights and buffers only: states are not even read, and the generator is left alone.
LoadedCheckpoint load_checkpoint(const std::string& folder, ShardedModel& model);

}  // namespace fullshard
