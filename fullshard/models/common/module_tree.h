// SPDX-License-Identifier: Apache-2.0
// Modules that only lend their name to a path.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

namespace fullshard::models {

// A module without parameters below `parent`: "encoder" of "encoder.layer.0", say.
inline torch::nn::Module& add_folder(torch::nn::Module& parent, const std::string& name) {
  return *parent.register_module(name, std::make_shared<torch::nn::Module>());
}

}  // namespace fullshard::models
