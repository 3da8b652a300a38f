// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's own estimate of model states: what its estimate_zero2_model_states_mem_needs and
// estimate_zero3_model_states_mem_needs compute, in the order in which they print it. No
// activations, no buffers; half of host memory on top.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard::planning {

struct ModelSize {
  int64_t total = 0;          // parameters, shared ones once
  int64_t largest_layer = 0;  // of the modules' own parameters
};
ModelSize size_of(const torch::nn::Module& module);

struct DeepSpeedRow {
  int stage = 2;
  bool offload_optimizer = false;
  bool offload_param = false;  // stage 3
  bool zero_init = false;      // stage 3
  int64_t cpu_bytes = 0;       // of a node
  int64_t gpu_bytes = 0;       // of a GPU
  int64_t largest_layer_bytes = 0;
};

// A usage Error if a figure exceeds 64 bits.
std::vector<DeepSpeedRow> deepspeed_table(const ModelSize& size, int gpus_per_node, int nodes);

std::string deepspeed_text(const std::vector<DeepSpeedRow>& rows, const ModelSize& size,
                           int gpus_per_node, int nodes);
std::string deepspeed_json(const std::vector<DeepSpeedRow>& rows);

}  // namespace fullshard::planning
