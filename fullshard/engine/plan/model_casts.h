// SPDX-License-Identifier: Apache-2.0
// What of a model is cast besides its parameters: the inputs of units, the outputs of the root, the
// operands of products and the buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include "fullshard/engine/plan/options.h"
#include "fullshard/engine/plan/wrap.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard::engine {

// An error names an option that is no floating dtype, or what the device does not have.
void check_dtypes(const ShardOptions& options, at::Device device);

// With cast_forward_inputs and a param_dtype the root, and every unit that holds or borrows
// parameters, casts what it is called with; the root's result becomes output_dtype. Blocks multiply
// as `products` says.
void set_forward_casts(const WrapPlan& plan, const ShardOptions& options);
void clear_forward_casts(const WrapPlan& plan);

// Buffers of units follow the parameters to `device`, in place.
void move_buffers(const WrapPlan& plan, at::Device device);

// Floating buffers become `dtype` in place: every handle of the module sees it. Those of ignored
// modules stay. An error names a buffer that a cast would part from what it shares memory with.
void cast_buffers(torch::nn::Module& root, const WrapPlan& plan, at::ScalarType dtype);

}  // namespace fullshard::engine
