// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/tensor_source.h"

#include <algorithm>

#include "fullshard/formats/element_type.h"

namespace fullshard {

int64_t StoredTensor::numel() const { return checked_numel(shape).value_or(0); }

const StoredTensor* TensorSource::find(const std::string& name) const {
  const auto& all = tensors();
  const auto found = std::ranges::lower_bound(all, name, {}, &StoredTensor::name);
  return found != all.end() && found->name == name ? &*found : nullptr;
}

std::optional<TensorSource::Place> TensorSource::place_of(const std::string&) const {
  return std::nullopt;
}

std::vector<SummedStorage> TensorSource::storages_of(const std::string&) const { return {}; }

}  // namespace fullshard
