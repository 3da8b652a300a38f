// SPDX-License-Identifier: Apache-2.0
// The precision of a training run under the names that people know: Accelerate's mixed_precision,
// DeepSpeed's fp16, bf16 and data_types keys, apex's levels.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/engine/plan/options.h"

namespace fullshard {

// DeepSpeed's keys with its defaults; an empty string stands for an absent key.
struct PrecisionKeys {
  bool fp16 = false;                           // fp16.enabled
  bool fp16_master_weights_and_grads = false;  // fp16.…
  bool bf16 = false;                           // bf16.enabled
  bool fp8 = false;                            // Accelerate's mixed_precision; bf16 is true then
  bool fp8_e4m3 = false;                       // fp8_config.format: gradients too
  bool bf16_master_weights_and_grads = false;  // bf16.…
  bool bf16_optimizer_states = false;          // bf16.…
  std::string amp{};                           // amp.opt_level, where amp.enabled
  std::string communication_data_type{};
  std::string grad_accum_dtype{};  // data_types.…
};

// Absent dtypes leave the engine's defaults: parameters as the model has them, reductions in the
// compute dtype, gradients in fp32, outputs as they come.
struct Precision {
  std::optional<at::ScalarType> compute{};
  std::optional<at::ScalarType> master{};
  std::optional<at::ScalarType> gradient{};
  std::optional<at::ScalarType> reduce{};
  std::optional<at::ScalarType> buffer{};
  std::optional<at::ScalarType> output{};
  ProductPrecision products = ProductPrecision::operands;
  at::ScalarType optimizer_state = at::kFloat;
  bool loss_scaling = false;

  // "no": the model's own dtypes; "fp32"; "bf16" and "fp16": 16-bit computation, gathers,
  // reductions and buffers with fp32 masters and gradients, fp16 with loss scaling; "fp8": as bf16,
  // with the products of blocks in 8 bits. In any case of letters.
  static Precision named(std::string_view name);
  // "O0" is fp32; "O1" and "O2" fp16 with fp32 masters and loss scaling; "O3" fp16 throughout,
  // without loss scaling as in apex. Optimizer states are fp32 at every level: squares of fp16
  // gradients would vanish.
  static Precision amp(std::string_view level);
  // Keys that contradict each other are an error that names them.
  static Precision from(const PrecisionKeys& keys);

  // Writes what is present into the options; the others stay.
  void apply_to(ShardOptions& options) const;
};

// fp32, fp16, bf16 in the spellings of DeepSpeed and Hugging Face, such as "torch.bfloat16". The
// error names the key.
at::ScalarType dtype_named(std::string_view key, std::string_view name);

// tf32 in fp32 matrix products and convolutions of CUDA, and the like of it on CPUs that have it.
// A setting of the process, independent of any Precision.
void set_tf32(bool allowed);

// What is known to go wrong before the start. `config_dtype` is what the model's config says
// ("bfloat16"), if anything; `model_type` such as "llama" or "t5".
std::vector<std::string> precision_warnings(const Precision& precision,
                                            const std::optional<std::string>& config_dtype,
                                            std::string_view model_type);

}  // namespace fullshard
