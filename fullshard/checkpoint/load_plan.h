// SPDX-License-Identifier: Apache-2.0
// What a rank has to read of a checkpoint: the parts of files in which its own pieces lie.
#pragma once

#include <string>
#include <vector>

#include "fullshard/checkpoint/model_tensors.h"
#include "fullshard/optim/optimizer_states.h"
#include "fullshard/stored/blocks/block_reader.h"
#include "fullshard/stored/manifest.h"

namespace fullshard::checkpoint {

// Which tensor of the manifest each of the model's is, in the model's order; null for frozen ones
// that a save left out. Everything in which
// they differ is one error of the kind input that begins with `folder`. With an optimizer's states
// its name and theirs must be those that were saved.
std::vector<const stored::ManifestTensor*> match_tensors(const stored::Manifest& manifest,
                                                         const std::vector<ModelTensor>& tensors,
                                                         const optim::OptimizerStates* states,
                                                         const std::string& folder);

// Borrows from the manifest and looks into the model's and the states' memory.
class LoadPlan {
 public:
  LoadPlan(const stored::Manifest& manifest, const std::string& folder,
           const engine::Engine& engine, const optim::OptimizerStates* states);

  // Once.
  std::vector<stored::WantedFile> take_files();
  // After reading: what could not be read straight into its place.
  void finish() const;
  // That the files which this rank needs are there with their sizes.
  void check_files() const;

 private:
  void want(const stored::StoredValues& values, int64_t begin, const at::Tensor& target,
            const std::string& what);

  const stored::Manifest& manifest_;
  std::string folder_;
  std::vector<stored::WantedFile> files_;  // one per file of the manifest
  struct Staged {
    at::Tensor target, values;
  };
  std::vector<Staged> staged_;
};

}  // namespace fullshard::checkpoint
