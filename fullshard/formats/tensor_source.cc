#include "fullshard/formats/tensor_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"

namespace fullshard {

int64_t StoredTensor::numel() const { return checked_numel(shape).value_or(0); }

const StoredTensor* TensorSource::find(const std::string& name) const {
  const auto& all = tensors();
  const auto found = std::ranges::lower_bound(all, name, {}, &StoredTensor::name);
  return found != all.end() && found->name == name ? &*found : nullptr;
}

at::Tensor TensorSource::read_whole(const std::string& name) const {
  const StoredTensor* tensor = find(name);
  check_input(tensor != nullptr, "there is no tensor '{}' among {}", name, tensors().size());
  check_input(is_readable(tensor->dtype),
              "{}: tensor '{}': its dtype {} is not one that is read here; convert the file",
              tensor->file, name, c10::toString(tensor->dtype));
  at::Tensor values = at::empty(tensor->shape, at::TensorOptions().dtype(tensor->dtype));
  read(name, 0, values.view(-1));
  return values;
}

}  // namespace fullshard
