// Gated and plain activations on contiguous elements of the CPU. `Stored` is float or Brain.
#pragma once

#include <cstdint>

namespace fullshard {

enum class Activation { silu, tanh_gelu };

template <class Stored>
void activate(Activation kind, Stored* output, const Stored* input, int64_t numel);

template <class Stored>
void activate_gradient(Activation kind, Stored* input_gradient, const Stored* output_gradient,
                       const Stored* input, int64_t numel);

// output = activation(gate) * up.
template <class Stored>
void activate_gated(Activation kind, Stored* output, const Stored* gate, const Stored* up,
                    int64_t numel);

template <class Stored>
void activate_gated_gradient(Activation kind, Stored* gate_gradient, Stored* up_gradient,
                             const Stored* output_gradient, const Stored* gate, const Stored* up,
                             int64_t numel);

}  // namespace fullshard
