// SPDX-License-Identifier: Apache-2.0
// How kernels are run here: over memory that begins as NaN and has more of it on both sides, and
// several times, with the threads in other orders.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "fullshard/ops/cuda/kernel_dtype.h"
#include "fullshard/tensor/device_stream.h"

namespace fullshard::emulation {

inline const auto kNoStream = tensor::DeviceStream::of_emulation();

// What a kernel writes. Begins at a multiple of 16 bytes, `shift` elements further.
class Output {
 public:
  Output(at::IntArrayRef sizes, at::ScalarType dtype, int shift = 0);
  Output(const at::Tensor& before, int shift = 0);  // begins as a copy
  const at::Tensor& values() const { return values_; }
  template <class T = void>
  T* data() const {
    return static_cast<T*>(values_.data_ptr());
  }
  // The bytes around it are what they were.
  bool is_alone_written() const;

 private:
  at::Tensor whole_, before_, values_;
};

using Outputs = std::vector<Output>;

// Calls `run`, which makes new outputs and lets kernels fill them, under several orders of threads
// and blocks. Bits must be the same each time, and nothing written beside the outputs; what the
// first run found.
std::vector<at::Tensor> run_in_orders(const std::function<Outputs()>& run);

// A copy that begins `shift` elements after a multiple of 16 bytes.
at::Tensor shifted_by(const at::Tensor& values, int shift);

ops::KernelDtype kernel_dtype(at::ScalarType dtype);  // fp32 or bf16

inline constexpr at::ScalarType kKernelDtypes[] = {at::kFloat, at::kBFloat16};

// Relative to the largest expected magnitude; not a number only where that is expected.
void expect_near(const at::Tensor& found, const at::Tensor& expected, double relative,
                 const std::string& what);

// What rounding to a dtype, once, and sums of fp32 in another order may do.
inline double tolerance_of(at::ScalarType dtype) { return dtype == at::kFloat ? 1e-5 : 5e-3; }

}  // namespace fullshard::emulation
