// SPDX-License-Identifier: Apache-2.0
// Offloaded activations of a sharded model, entered in its ledger.
#pragma once

#include <cstdint>
#include <memory>

#include "fullshard/memory/ledger.h"
#include "fullshard/nn/saved_tensor_hooks.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard::engine {

// A packer for the units of `module`, which is sharded already: what it stores is held in host
// memory, as activations.
std::shared_ptr<nn::SavedTensorPacker> make_activation_packer(const torch::nn::Module& module,
                                                              std::shared_ptr<Ledger> ledger,
                                                              int64_t min_bytes);

}  // namespace fullshard::engine
