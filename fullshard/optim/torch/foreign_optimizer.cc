// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/torch/foreign_optimizer.h"

#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "fullshard/base/error.h"

namespace fullshard {

bool is_tested(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const torch::optim::Adam*>(&optimizer) ||
         dynamic_cast<const torch::optim::AdamW*>(&optimizer) ||
         dynamic_cast<const torch::optim::Adagrad*>(&optimizer);
}

void check_foreign_optimizer(const ForeignOptimizerRules& rules, std::string_view name,
                             bool is_tested) {
  check(
      rules.stage == 0 || is_tested || rules.zero_allow_untested_optimizer,
      "optimizer {}: it is not one of those tested with ZeRO stage {}; set "
      "\"zero_allow_untested_optimizer\": true to use it, or name one in the section \"optimizer\"",
      name, rules.stage);
  check(!rules.offload || !rules.zero_force_ds_cpu_optimizer,
        "optimizer {}: with offload_optimizer the optimizer has to be the one of the section "
        "\"optimizer\"; set \"zero_force_ds_cpu_optimizer\": false to use your own",
        name);
}

void check_foreign_optimizer(const ForeignOptimizerRules& rules,
                             const torch::optim::Optimizer& optimizer) {
  check_foreign_optimizer(rules, c10::demangle(typeid(optimizer).name()), is_tested(optimizer));
}

}  // namespace fullshard
