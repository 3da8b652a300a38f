// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor_io/read_tensor.h"

#include <ATen/ops/empty.h>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::tensor_io {

at::Tensor read_tensor(const TensorSource& source, const std::string& name) {
  const StoredTensor* tensor = source.find(name);
  formats::check_input(tensor != nullptr, "there is no tensor '{}' among {}", name,
                       source.tensors().size());
  formats::check_input(is_readable(tensor->dtype),
                       "{}: tensor '{}': unsupported dtype {}; convert the file", tensor->file,
                       name, c10::toString(tensor->dtype));
  at::Tensor values = at::empty(tensor->shape, at::TensorOptions().dtype(tensor->dtype));
  source.read(name, 0, values.view(-1));
  return values;
}

}  // namespace fullshard::tensor_io
