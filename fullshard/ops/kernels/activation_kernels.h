// SPDX-License-Identifier: Apache-2.0
// Gated and plain activations on contiguous elements of the CPU. `Stored` is float or Brain.
#pragma once

#include <cstdint>

namespace fullshard::ops {

enum class KernelActivation { silu, tanh_gelu };

template <class Stored>
void activate(KernelActivation kind, Stored* output, const Stored* input, int64_t numel);

template <class Stored>
void activate_gradient(KernelActivation kind, Stored* input_gradient, const Stored* output_gradient,
                       const Stored* input, int64_t numel);

// output = activation(gate) * up.
template <class Stored>
void activate_gated(KernelActivation kind, Stored* output, const Stored* gate, const Stored* up,
                    int64_t numel);

template <class Stored>
void activate_gated_gradient(KernelActivation kind, Stored* gate_gradient, Stored* up_gradient,
                             const Stored* output_gradient, const Stored* gate, const Stored* up,
                             int64_t numel);

}  // namespace fullshard::ops
