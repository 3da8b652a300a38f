// SPDX-License-Identifier: Apache-2.0
// Files for other programs in a checkpoint of ours: config.json, model.safetensors, PEFT's. Loading
// does not need them, but their readers must get what was saved.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullshard/formats/tensor_source.h"
#include "fullshard/stored/manifest.h"

namespace fullshard::stored {

// All files in the folder but those that the manifest describes, with their checksums.
std::vector<StoredFile> sum_side_files(const std::string& folder, const Manifest& manifest);

// Reads a whole file of the folder and compares its checksums, whatever it holds.
void check_sums_of_file(const StoredFile& file, const std::string& folder);

// Compares them, or one of them, with what was saved; older manifests do not describe them. Errors
// are of the kind input and name the file.
void check_side_files(const Manifest& manifest, const std::string& folder);
void check_side_file(const Manifest& manifest, const std::string& folder, const std::string& name);

// For a checkpoint whose manifest does not describe them: compares the values in its file of full
// weights, if there is one, with those that have checksums.
void compare_side_weights(const std::shared_ptr<const Manifest>& manifest,
                          const std::string& folder);

// Weights and configuration of the folder that a model is read from. In a checkpoint of ours, data
// with checksums are read, or what is read is compared first; other folders are read unchecked.
std::unique_ptr<TensorSource> open_model_weights(const std::string& folder);
bool holds_model_weights(const std::string& folder);
void check_model_file(const std::string& folder, const std::string& name);

}  // namespace fullshard::stored
