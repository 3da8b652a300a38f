// SPDX-License-Identifier: Apache-2.0
// Weights and the optimizer's states side by side in one source, under the flat names of
// torch.distributed.checkpoint: what its HuggingFaceStorageWriter leaves, and `fullshard checkpoint
// convert --to dcp`. (PATH/.metadata with .distcp files is foreign/dcp_folder.)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/formats/foreign/state_dict_names.h"
#include "fullshard/formats/tensor_source.h"

namespace fullshard::formats {

class FlatStateDict {
 public:
  // Whether all names have that form, states among them. Without states they may be a model's
  // own, since Llama's begin with "model." too.
  static bool is_one(const TensorSource& source);
  explicit FlatStateDict(std::shared_ptr<const TensorSource> source);

  // Null: it holds no weights.
  std::unique_ptr<TensorSource> weights() const;
  std::vector<std::string> states() const;
  std::unique_ptr<TensorSource> state(const std::string& name) const;
  // The optimizer's own count; nothing if it is not stored.
  std::optional<int64_t> num_steps() const;

 private:
  std::shared_ptr<const TensorSource> source_;
  StateDictNames names_;
};

}  // namespace fullshard::formats
