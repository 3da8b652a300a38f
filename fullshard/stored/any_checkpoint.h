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
  std::unique_ptr<TensorSource> weights = {};    // null: it holds states only
  std::map<std::string, std::string> tied = {};  // a second name -> the name whose values it has
  std::vector<State> states = {};                // of the optimizer
  std::set<std::string> exact = {};              // weights that no export casts, as counts
  // States of parameters that are numbered instead of named; then `states` is empty.
  std::shared_ptr<const formats::OptimizerFile> numbered = {};
  std::vector<std::pair<std::string, std::string>> facts = {};  // "ranks", "2": for people
  std::string config = {};   // the model's config.json, where ours says it
  std::string adapter = {};  // adapter_config.json, where it holds an adapter without its base
  // How far training had come, where that is said.
  std::optional<int64_t> num_steps = {};
  int64_t num_skipped = 0;                      // of them
  std::optional<int64_t> optimizer_steps = {};  // as the optimizer counts them
  std::optional<int64_t> scheduler_steps = {};  // of the learning rate
  std::optional<formats::SavedLossScale> loss_scale = {};
  // Compares all checksums that the files carry; throws (kind input) at the first that is wrong.
  std::function<void()> check_sums = {};
  bool has_sums = false;
  std::vector<std::string> without_sums = {};  // files of it that carry none, beside others that do

  // Without second names of tied tensors.
  std::vector<StoredTensor> distinct_weights() const;
};

// `with_frozen`: DeepSpeed's parameters that were not trained, too. Errors are of the kind input.
AnyCheckpoint open_any(const FoundCheckpoint& found, bool with_frozen = true);
// Of what FoundCheckpoint::find() finds at the path.
AnyCheckpoint open_any(const std::string& path, const AnyCheckpointOptions& options = {});

}  // namespace fullshard::stored
