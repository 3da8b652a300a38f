// SPDX-License-Identifier: Apache-2.0
// A checkpoint of any known kind as named tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/formats/tensor_source.h"
#include "fullshard/formats/torch/optimizer_file.h"
#include "fullshard/formats/torch/saved_progress.h"
#include "fullshard/stored/found_checkpoint.h"

namespace fullshard::stored {

struct AnyCheckpointOptions {
  std::string tag = {};     // which of several in the folder; empty: the latest
  bool with_frozen = true;  // DeepSpeed: parameters that were not trained
};

struct AnyCheckpoint {
  struct State {
    std::string name;  // "exp_avg"
    std::unique_ptr<TensorSource> tensors;
  };

  std::string kind;                              // "DeepSpeed ZeRO-2"
  std::string path;                              // of the folder or file that was opened
  std::unique_ptr<TensorSource> weights = {};    // null: it holds only states
  std::map<std::string, std::string> tied = {};  // a second name -> the name whose values it has
  std::vector<State> states = {};                // of the optimizer
  std::set<std::string> exact = {};              // weights that exports do not cast, such as counts
  // States of parameters that are numbered instead of named; then `states` is empty.
  std::shared_ptr<const formats::OptimizerFile> numbered = {};
  std::vector<std::pair<std::string, std::string>> facts = {};  // "ranks", "2": for people
  std::string config = {};   // the model's config.json, if our checkpoint has it
  std::string adapter = {};  // adapter_config.json, if it holds an adapter without its base
  // The progress of training, where it is stored.
  std::optional<int64_t> num_steps = {};
  int64_t num_skipped = 0;                      // of them
  std::optional<int64_t> optimizer_steps = {};  // as the optimizer counts them
  std::optional<int64_t> scheduler_steps = {};  // of the learning rate
  std::optional<formats::SavedLossScale> loss_scale = {};
  // Verifies all checksums of the files; throws (kind input) at the first mismatch.
  std::function<void()> check_sums = {};
  bool has_sums = false;
  std::vector<std::string> without_sums = {};  // its files without checksums, if others have them

  // Without second names of tied tensors.
  std::vector<StoredTensor> distinct_weights() const;
};

// `with_frozen`: DeepSpeed's parameters that were not trained, too. Errors are of the kind input.
AnyCheckpoint open_any(const FoundCheckpoint& found, bool with_frozen = true);
// Opens what FoundCheckpoint::find() finds at the path.
AnyCheckpoint open_any(const std::string& path, const AnyCheckpointOptions& options = {});

}  // namespace fullshard::stored
