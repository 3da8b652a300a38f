// SPDX-License-Identifier: Apache-2.0
// What a sharded model consists of, as files see it: named tensors, and where this rank keeps its
// part of each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/engine/engine.h"

namespace fullshard::checkpoint {

// Borrows from the engine; not to outlive it.
struct ModelTensor {
  std::vector<std::string> names;  // tied ones have several
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;          // it is kept in
  const engine::ParamGroup* group = nullptr;  // null: `whole`, on every rank
  int slot = 0;
  at::Tensor whole = {};
  bool is_buffer = false;
  bool is_required = true;  // in files; a buffer that has values need not be there

  int64_t numel() const;
  // This rank's part: elements [begin, begin + values.numel()), 1-D, writable.
  struct Part {
    int64_t begin = 0;
    at::Tensor values;
  };
  std::optional<Part> own_part() const;  // none: other ranks hold it all
};

// A parameter that is not trained.
bool is_frozen(const ModelTensor& tensor);

// Parameters of units in order of the module tree, then those of ignored modules, then buffers.
std::vector<ModelTensor> model_tensors(const engine::Engine& engine);

}  // namespace fullshard::checkpoint
