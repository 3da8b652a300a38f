// SPDX-License-Identifier: Apache-2.0
// First values of parameters.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace fullshard::models {

// Normal values around 0. They are made in fp32 by the generator, which is a CPU one, and rounded
// to the parameter's dtype: the same numbers for every dtype and device.
void initialise_normal(at::Tensor& parameter, double deviation, const at::Generator& generator);

void initialise_constant(at::Tensor& parameter, double value);

// One row of a table: the padding token's.
void zero_row(at::Tensor& table, int64_t row);

}  // namespace fullshard::models
