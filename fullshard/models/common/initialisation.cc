// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/initialisation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace fullshard::models {

void initialise_normal(at::Tensor& parameter, double deviation, const at::Generator& generator) {
  const at::NoGradGuard no_grad;
  const bool in_place = parameter.device().is_cpu() && parameter.scalar_type() == at::kFloat &&
                        parameter.is_contiguous();
  if (in_place) {
    parameter.normal_(0, deviation, generator);
  } else {
    auto values = at::empty(parameter.sizes(), at::TensorOptions().dtype(at::kFloat));
    parameter.copy_(values.normal_(0, deviation, generator));
  }
}

void initialise_constant(at::Tensor& parameter, double value) {
  const at::NoGradGuard no_grad;
  parameter.fill_(value);
}

void zero_row(at::Tensor& table, int64_t row) {
  const at::NoGradGuard no_grad;
  table.select(0, row).zero_();
}

}  // namespace fullshard::models
