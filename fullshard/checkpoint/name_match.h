// SPDX-License-Identifier: Apache-2.0
// Which tensor of a file gives a model's tensor its values; everything that does not fit, at once.
#pragma once

#include <string>
#include <vector>

#include "fullshard/checkpoint/model_io.h"
#include "fullshard/checkpoint/model_tensors.h"

namespace fullshard::checkpoint {

// A model's tensor under the name that the file has for it.
struct TensorMatch {
  const ModelTensor* tensor = nullptr;
  std::string name;
  bool transposed = false;
};

// Whether LoadOptions::from_rows makes it of a file's tensor.
bool is_made_from_rows(const ModelTensor& tensor, at::ScalarType in_file,
                       const LoadOptions& options);

// What `names` says of a tensor's name, checked.
stored::NameInFile name_in_file(const ModelTensor& tensor, const std::string& name,
                                const FileNames& names);

// In the order of `tensors`, without those that are optional and absent. Missing, extra and
// mis-shaped tensors are one error of the kind input.
std::vector<TensorMatch> match_names(const TensorSource& source,
                                     const std::vector<ModelTensor>& tensors,
                                     const LoadOptions& options);

}  // namespace fullshard::checkpoint
