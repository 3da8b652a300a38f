// SPDX-License-Identifier: Apache-2.0
// Which tensors the CPU kernels serve; device_operators.h says it for the GPU. Everything else
// (fp16, fp64) takes each operator's composition of libtorch's own operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <initializer_list>

#include "fullshard/base/error.h"
#include "fullshard/ops/kernels/stored_types.h"

namespace fullshard::ops {

inline bool has_cpu_kernel(const at::Tensor& tensor) {
  return tensor.is_cpu() &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

// All tensors must be of one dtype.
inline bool has_cpu_kernel(std::initializer_list<at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    if (!has_cpu_kernel(tensor)) return false;
    if (tensor.scalar_type() != tensors.begin()->scalar_type()) return false;
  }
  return true;
}

// Calls `use` with a null pointer of the type that holds elements of a tensor with a kernel.
template <class Use>
void with_stored_type(const at::Tensor& tensor, const Use& use) {
  if (tensor.scalar_type() == at::kFloat) {
    use(static_cast<float*>(nullptr));
  } else {
    use(static_cast<Brain*>(nullptr));
  }
}

template <class Stored>
const Stored* elements(const at::Tensor& tensor) {
  return static_cast<const Stored*>(tensor.const_data_ptr());
}
template <class Stored>
Stored* mutable_elements(const at::Tensor& tensor) {
  return static_cast<Stored*>(tensor.mutable_data_ptr());
}

// At least so many elements for a thread of its own.
inline constexpr int64_t kElementsPerThread = 1 << 14;

inline int64_t rows_per_thread(int64_t width) { return kElementsPerThread / (width + 1) + 1; }

// Backward functions on raw elements would make second derivatives silently zero.
inline void refuse_second_derivative(const char* what) {
  check(!at::GradMode::is_enabled(),
        "{}: second derivatives are not supported; call backward without create_graph", what);
}

}  // namespace fullshard::ops
