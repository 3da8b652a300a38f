// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/activation_packer.h"

#include <utility>

#include "fullshard/nn/activation_offload.h"
#include "fullshard/nn/activation_store.h"

namespace fullshard::engine {

std::shared_ptr<nn::SavedTensorPacker> make_activation_packer(const torch::nn::Module& module,
                                                              std::shared_ptr<Ledger> ledger,
                                                              int64_t min_bytes) {
  auto store = std::make_shared<HostStore>([ledger = std::move(ledger)](int64_t delta_bytes) {
    ledger->hold(tiers::Purpose::activations, tiers::Tier::host, delta_bytes);
  });
  return std::make_shared<ActivationOffload>(module, std::move(store),
                                             OffloadOptions{.min_bytes = min_bytes});
}

}  // namespace fullshard::engine
