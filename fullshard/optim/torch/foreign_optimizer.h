// SPDX-License-Identifier: Apache-2.0
// Whether a configuration allows an optimizer that the user brings along.
#pragma once

#include <string_view>

namespace torch::optim {
class Optimizer;
}

namespace fullshard {

// DeepSpeed's keys, with its defaults.
struct ForeignOptimizerRules {
  bool zero_allow_untested_optimizer = false;
  bool zero_force_ds_cpu_optimizer = true;
  bool offload = false;  // optimizer states live in host memory
  int stage = 0;
};

// Those that DeepSpeed's ZeRO takes without being told: torch's Adam, AdamW and Adagrad.
bool is_tested(const torch::optim::Optimizer& optimizer);

// An error that names the key which would allow it. `name` is for the message.
void check_foreign_optimizer(const ForeignOptimizerRules& rules, std::string_view name,
                             bool is_tested);
void check_foreign_optimizer(const ForeignOptimizerRules& rules,
                             const torch::optim::Optimizer& optimizer);

}  // namespace fullshard
