// SPDX-License-Identifier: Apache-2.0
// Offload of activations: what autograd saves inside a unit's forward goes to a store and comes
// back in backward. Values, shapes, strides and alignment come back as they were, so gradients keep
// their bits.
//
//   auto store = std::make_shared<HostStore>();
//   offload_activations(*model, store);
//
// What stays with the graph: parameters and buffers of the model and views of them (so a released
// parameter is never read), other leaves that require gradients, and what is small. A tensor that
// is saved several times is stored once. A recomputed unit saves its inputs only, so only they are
// stored; what its replay saves is used at once and stays.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "fullshard/nn/activation_store.h"
#include "fullshard/nn/saved_tensor_hooks.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard {

struct OffloadOptions {
  int64_t min_bytes = 16 * 1024;  // smaller ones are not worth a copy
};

// Belongs to the units that use it; what it packed may outlive it.
class ActivationOffload : public nn::SavedTensorPacker {
 public:
  // Knows the memory of the model's parameters and buffers as it is now: shard the model first.
  ActivationOffload(const torch::nn::Module& model, std::shared_ptr<ActivationStore> store,
                    const OffloadOptions& options = {});

  std::unique_ptr<nn::PackedTensor> pack(const at::Tensor& tensor) override;

  class Shelf;

 private:
  bool stays(const at::Tensor& tensor) const;

  OffloadOptions options_;
  // Weak pointers keep an address from being used again.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> of_model_;
  std::shared_ptr<Shelf> shelf_;
};

// Switches every unit of the model, however deep, to one offload, or with keep_activations() back.
// Gives the number of units.
int offload_activations(torch::nn::Module& model, std::shared_ptr<ActivationStore> store,
                        const OffloadOptions& options = {});
int keep_activations(torch::nn::Module& model);

}  // namespace fullshard
