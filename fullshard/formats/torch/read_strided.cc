// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/read_strided.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "fullshard/formats/read_elements.h"

namespace fullshard::formats {
namespace {

// A stretch of the storage, in the dtype of the target.
class Window {
 public:
  Window(const FileHandle& file, const TorchTensor& tensor, at::ScalarType dtype,
         std::string_view what)
      : file_(file), tensor_(tensor), dtype_(dtype), what_(what) {}

  const char* at(int64_t element) {
    if (element < begin_ || element >= end_) load(element);
    return data_ + (element - begin_) * element_bytes(dtype_);
  }

 private:
  void load(int64_t element) {
    constexpr int64_t kElements = int64_t{1} << 17;
    begin_ = element;
    end_ = std::min(element + kElements, tensor_.storage_numel);
    values_.emplace(end_ - begin_, dtype_);
    const auto size = element_bytes(tensor_.dtype);
    read_elements(file_, tensor_.storage_offset + begin_ * size, tensor_.dtype, values_->all(),
                  what_, tensor_.sum.get());
    data_ = static_cast<const char*>(values_->all().data);
  }

  const FileHandle& file_;
  const TorchTensor& tensor_;
  at::ScalarType dtype_;
  std::string_view what_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::optional<ElementBuffer> values_;
  const char* data_ = nullptr;
};

struct Dim {
  int64_t size;
  int64_t stride;  // in the storage
  int64_t weight;  // in the row-major order of the tensor
  int64_t index = 0;
};

// Largest strides first: counting the last one fastest walks the storage from its start to its
// end.
std::vector<Dim> dims_by_stride(const TorchTensor& tensor) {
  std::vector<Dim> dims;
  int64_t weight = 1;
  for (size_t i = tensor.shape.size(); i > 0; --i) {
    dims.push_back({tensor.shape[i - 1], tensor.strides[i - 1], weight});
    weight *= tensor.shape[i - 1];
  }
  std::ranges::stable_sort(dims, std::greater<>(), &Dim::stride);
  return dims;
}

}  // namespace

void read_strided(const FileHandle& file, const TorchTensor& tensor, int64_t begin,
                  const ElementSpan& out, std::string_view what) {
  Window window(file, tensor, out.dtype, what);
  std::vector<Dim> dims = dims_by_stride(tensor);
  const int64_t end = begin + out.numel;
  const int64_t numel =
      std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
  const auto size = static_cast<size_t>(element_bytes(out.dtype));
  auto* target = static_cast<char*>(out.data);
  int64_t place = 0;
  int64_t element = tensor.first;
  for (int64_t count = 0; count < numel; ++count) {
    if (place >= begin && place < end) {
      std::memcpy(target + (place - begin) * static_cast<int64_t>(size), window.at(element), size);
    }
    for (size_t i = dims.size(); i > 0; --i) {
      Dim& dim = dims[i - 1];
      place += dim.weight;
      element += dim.stride;
      if (++dim.index < dim.size) break;
      dim.index = 0;
      place -= dim.weight * dim.size;
      element -= dim.stride * dim.size;
    }
  }
}

}  // namespace fullshard::formats
