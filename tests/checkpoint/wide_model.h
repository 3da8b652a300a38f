// SPDX-License-Identifier: Apache-2.0
// One layer of any size: files of several blocks.
#pragma once

#include <torch/nn/modules/linear.h>

#include "fullshard/nn/unit.h"

namespace fullshard::testing {

struct WideImpl : Unit {
  explicit WideImpl(int64_t width) {
    layer = register_module("layer", torch::nn::Linear(width, width));
  }
  at::Tensor forward(at::Tensor x) { return layer(x); }
  torch::nn::Linear layer{nullptr};
};
FULLSHARD_UNIT(Wide);

}  // namespace fullshard::testing
