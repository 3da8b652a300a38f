// SPDX-License-Identifier: Apache-2.0
// Values in memory, one after the other: what sources of tensors fill and writers take. It borrows
// the memory, of a tensor for example, and needs only the dtype names of libtorch.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"

namespace fullshard {

template <class Type>
concept TensorLike = requires(const Type& tensor) {
  tensor.mutable_data_ptr();
  tensor.scalar_type();
  tensor.is_contiguous();
};

struct ElementSpan {
  void* data = nullptr;
  int64_t numel = 0;
  at::ScalarType dtype = at::ScalarType::Float;

  ElementSpan() = default;
  ElementSpan(void* memory, int64_t count, at::ScalarType type)
      : data(memory), numel(count), dtype(type) {}
  explicit ElementSpan(double& number) : ElementSpan(&number, 1, at::ScalarType::Double) {}
  template <TensorLike Tensor>
  ElementSpan(const Tensor& tensor);  // 1-D, contiguous, in the CPU's memory

  int64_t bytes() const { return numel * element_bytes(dtype); }
  ElementSpan part(int64_t begin, int64_t count) const {
    return {static_cast<char*>(data) + begin * element_bytes(dtype), count, dtype};
  }
};

// Elements that own their memory.
class ElementBuffer {
 public:
  ElementBuffer(int64_t numel, at::ScalarType dtype)
      : bytes_(std::make_unique_for_overwrite<char[]>(
            static_cast<size_t>(numel * element_bytes(dtype)))),
        all_(bytes_.get(), numel, dtype) {}

  const ElementSpan& all() const { return all_; }

 private:
  std::unique_ptr<char[]> bytes_;
  ElementSpan all_;
};

template <TensorLike Tensor>
ElementSpan::ElementSpan(const Tensor& tensor) {
  formats::check_input(tensor.dim() == 1 && tensor.is_contiguous() && tensor.is_cpu(),
                       "elements: expected a 1-D contiguous CPU tensor, got shape {}",
                       format_shape(tensor.sizes()));
  *this = ElementSpan(tensor.mutable_data_ptr(), tensor.numel(), tensor.scalar_type());
}

}  // namespace fullshard
