// SPDX-License-Identifier: Apache-2.0
// A LoRA adapter added to its base for good: a model that knows nothing of adapters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace fullshard {

struct MergeAdapterOptions {
  std::optional<at::ScalarType> dtype{};   // of floating tensors; absent: as the base stores them
  int64_t max_file_bytes = 5'000'000'000;  // more: several files with an index
  bool overwrites = false;                 // `output` may be a folder with files in it
};

// Writes `output` as a whole or not at all, in one process: the base's folder with weight + scale *
// B * A in the place of each adapted weight, added in fp32 and rounded once, and modules that were
// saved whole in theirs; its configuration and tokenizer are copied. Beside one tensor of the base
// nothing large is held. `base` is a folder with weights, or a name in the Hugging Face cache.
// Errors of kind input name what does not fit; a folder that is there and not empty is one of kind
// usage, and so is, even with `overwrites`, one that is read from.
void merge_adapter(const std::string& base, const std::string& adapter, const std::string& output,
                   const MergeAdapterOptions& options = {});

}  // namespace fullshard
