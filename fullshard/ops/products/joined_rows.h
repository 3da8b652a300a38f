// SPDX-License-Identifier: Apache-2.0
// Matrices that lie one after the other in memory, taken as one.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fullshard::ops {

// One matrix of all rows when each of these, contiguous and of one width and dtype, begins where
// the one before it ends: the neighbours in a flat buffer of parameters or gradients. Undefined
// otherwise. It shares their memory and does not keep it: the matrices must outlive it.
at::Tensor joined_rows(const std::vector<at::Tensor>& matrices);

}  // namespace fullshard::ops
