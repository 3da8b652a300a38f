// SPDX-License-Identifier: Apache-2.0
// What `--model` names: a Hugging Face folder, or a preset without weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fullshard/models/common/language_model.h"
#include "fullshard/models/common/stored_weights.h"

namespace fullshard {

struct ModelSource {
  std::string name;         // as the user wrote it
  std::string folder = {};  // empty for a preset
  std::string config_json = {};
  bool has_weights = false;

  std::string where() const;                   // of the configuration, for messages
  std::optional<int64_t> hidden_size() const;  // for "auto" values
  std::string dtype() const;                   // that the configuration says, or ""
  std::string new_weights_warning() const;     // of what has none
  // What the file of weights holds; nothing without one.
  StoredWeights stored_weights() const;
};

// A folder, else a preset, else a model in the Hugging Face cache (base/hub_cache.h). A folder
// without config.json is an Error of kind input; a name that is none of them one of kind usage.
ModelSource find_model(const std::string& name);
// The same, but no preset.
ModelSource find_pretrained_model(const std::string& name);

// Shapes only, no memory: see nn/deferred.h. Where the source has weights its sizes must be theirs,
// and they tell whether a head is tied. `needs_head` as in MakeOptions.
std::shared_ptr<LanguageModel> make_deferred_model(const ModelSource& source,
                                                   bool needs_head = false);

}  // namespace fullshard
