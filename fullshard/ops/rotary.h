// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: pairs (x[i], x[i + D/2]) of every head are turned by an angle that
// grows with the position.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard {

// cos and sin of every angle: fp32, [positions, D/2].
struct RotaryTable {
  at::Tensor cos;
  at::Tensor sin;
};

// `frequencies` [D/2] are the angles per position, `factor` multiplies cos and sin (1 for most).
RotaryTable make_rotary_table(const at::Tensor& frequencies, int64_t num_positions,
                              double factor = 1.0);

// input [batch, sequence, heads, D]; the table's row s is position s of the sequence, or
// positions[b, s] when positions are given. Computed in fp32, returned in the input's dtype.
at::Tensor apply_rotary(const at::Tensor& input, const RotaryTable& table,
                        const at::Tensor& positions = {});

}  // namespace fullshard
