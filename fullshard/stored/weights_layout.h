// SPDX-License-Identifier: Apache-2.0
// A file of weights before it is written: which of its bytes are known, and which are tensor values
// that are written later.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fullshard/formats/safetensors/safetensors_writer.h"

namespace fullshard::stored {

// Bytes [begin, begin + bytes) of the file: a text, or a tensor's elements in this dtype.
struct FilePart {
  int64_t begin = 0;
  int64_t bytes = 0;
  std::string text = {};
  std::string tensor = {};  // empty: the part is the text
  at::ScalarType dtype = at::kFloat;
};

struct WeightsLayout {
  std::vector<FilePart> parts;  // one after the other, from byte 0 on
  // What has to be written again after the values, given the CRC-32 of every part. Empty: nothing,
  // and no sums are needed.
  std::function<std::vector<FilePart>(const std::vector<uint32_t>& sums)> closing = {};

  int64_t bytes() const { return parts.empty() ? 0 : parts.back().begin + parts.back().bytes; }
};

// `path` is for messages.
WeightsLayout safetensors_layout(const std::vector<TensorPlan>& tensors, const std::string& path);

// For torch.load: a dictionary of tensors. `others` are further names of a tensor, by its name;
// they share its storage.
using FurtherNames = std::map<std::string, std::vector<std::string>>;
WeightsLayout torch_layout(const std::vector<TensorPlan>& tensors, const FurtherNames& others);

}  // namespace fullshard::stored
