// SPDX-License-Identifier: Apache-2.0
// The one seam with c10::StorageImpl: memory taken away from a storage and given back while every
// tensor that views it lives on. A tensor touched in between throws the given text.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace fullshard::tensor {

// A 1-D tensor over a storage without memory: any access throws `why` until refill().
at::Tensor empty_storage_tensor(int64_t numel, at::ScalarType dtype, const std::string& why,
                                at::Device device = at::kCPU);

// Takes the memory away. Views keep their shapes and can still be made; their data cannot be read.
// The memory itself belongs to whoever gave it to refill().
void release(const at::Tensor& tensor, const std::string& why);

// Puts memory under the storage of `tensor`; it must hold all bytes of the storage and outlive the
// next release(). Costs tens of nanoseconds; version counters do not move.
void refill(const at::Tensor& tensor, void* data);

bool is_released(const at::Tensor& tensor);

// A tensor of this shape that takes no memory and throws `why` when anything reads or writes it.
at::Tensor throwing_tensor(at::IntArrayRef shape, at::ScalarType dtype, const std::string& why,
                           at::Device device = at::kCPU);

}  // namespace fullshard::tensor
