// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/kernels/activation_kernels.h"

#include "fullshard/base/vectorised.h"
#include "fullshard/ops/kernels/stored_types.h"
#include "fullshard/ops/kernels/vector_exp.h"

namespace fullshard::ops {
namespace {

struct ValueAndSlope {
  float value, slope;
};

struct Silu {
  [[gnu::always_inline]] static float value(float x) { return x * logistic(x); }
  [[gnu::always_inline]] static ValueAndSlope both(float x) {
    const float share = logistic(x);
    return {x * share, share * (1.0f + x * (1.0f - share))};
  }
};

// 0.5 x (1 + tanh z) is x * logistic(2 z), with z = sqrt(2/pi) (x + 0.044715 x^3).
struct TanhGelu {
  static constexpr float kLinear = 2 * 0.79788456f;
  static constexpr float kCubic = kLinear * 0.044715f;

  [[gnu::always_inline]] static float value(float x) {
    return x * logistic(x * (kLinear + kCubic * (x * x)));
  }
  [[gnu::always_inline]] static ValueAndSlope both(float x) {
    const float square = x * x;
    const float share = logistic(x * (kLinear + kCubic * square));
    const float inner = kLinear + 3 * kCubic * square;
    return {x * share, share + x * share * (1.0f - share) * inner};
  }
};

template <class Function, class Stored>
FULLSHARD_VECTORISED void forward(Stored* __restrict output, const Stored* __restrict input,
                                  int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    output[i] = narrowed<Stored>(Function::value(widened(input[i])));
  }
}

template <class Function, class Stored>
FULLSHARD_VECTORISED void backward(Stored* __restrict input_gradient,
                                   const Stored* __restrict output_gradient,
                                   const Stored* __restrict input, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    const float slope = Function::both(widened(input[i])).slope;
    input_gradient[i] = narrowed<Stored>(widened(output_gradient[i]) * slope);
  }
}

template <class Function, class Stored>
FULLSHARD_VECTORISED void gated_forward(Stored* __restrict output, const Stored* __restrict gate,
                                        const Stored* __restrict up, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    output[i] = narrowed<Stored>(Function::value(widened(gate[i])) * widened(up[i]));
  }
}

template <class Function, class Stored>
FULLSHARD_VECTORISED void gated_backward(Stored* __restrict gate_gradient,
                                         Stored* __restrict up_gradient,
                                         const Stored* __restrict output_gradient,
                                         const Stored* __restrict gate, const Stored* __restrict up,
                                         int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    const float gradient = widened(output_gradient[i]);
    const ValueAndSlope at_gate = Function::both(widened(gate[i]));
    gate_gradient[i] = narrowed<Stored>(gradient * widened(up[i]) * at_gate.slope);
    up_gradient[i] = narrowed<Stored>(gradient * at_gate.value);
  }
}

// Calls `use` with an object of the function's type.
template <class Use>
void with_function(KernelActivation kind, const Use& use) {
  if (kind == KernelActivation::silu) {
    use(Silu{});
  } else {
    use(TanhGelu{});
  }
}

}  // namespace

template <class Stored>
void activate(KernelActivation kind, Stored* output, const Stored* input, int64_t numel) {
  with_function(kind, [&]<class Function>(Function) { forward<Function>(output, input, numel); });
}

template <class Stored>
void activate_gradient(KernelActivation kind, Stored* input_gradient, const Stored* output_gradient,
                       const Stored* input, int64_t numel) {
  with_function(kind, [&]<class Function>(Function) {
    backward<Function>(input_gradient, output_gradient, input, numel);
  });
}

template <class Stored>
void activate_gated(KernelActivation kind, Stored* output, const Stored* gate, const Stored* up,
                    int64_t numel) {
  with_function(
      kind, [&]<class Function>(Function) { gated_forward<Function>(output, gate, up, numel); });
}

template <class Stored>
void activate_gated_gradient(KernelActivation kind, Stored* gate_gradient, Stored* up_gradient,
                             const Stored* output_gradient, const Stored* gate, const Stored* up,
                             int64_t numel) {
  with_function(kind, [&]<class Function>(Function) {
    gated_backward<Function>(gate_gradient, up_gradient, output_gradient, gate, up, numel);
  });
}

#define FULLSHARD_INSTANTIATE(Stored)                                                             \
  template void activate(KernelActivation, Stored*, const Stored*, int64_t);                      \
  template void activate_gradient(KernelActivation, Stored*, const Stored*, const Stored*,        \
                                  int64_t);                                                       \
  template void activate_gated(KernelActivation, Stored*, const Stored*, const Stored*, int64_t); \
  template void activate_gated_gradient(KernelActivation, Stored*, Stored*, const Stored*,        \
                                        const Stored*, const Stored*, int64_t);
FULLSHARD_INSTANTIATE(float)
FULLSHARD_INSTANTIATE(Brain)
#undef FULLSHARD_INSTANTIATE

}  // namespace fullshard::ops
