// SPDX-License-Identifier: Apache-2.0
// Tensors of several files as one source.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/formats/safetensors/weight_index.h"
#include "fullshard/formats/tensor_source.h"

namespace fullshard::formats {

class PartedSource : public TensorSource {
 public:
  // `parts` by their names in the index. A promised tensor comes from the file promised; tensors
  // that the index does not know are listed too, if only one file has them.
  PartedSource(const WeightIndex& index,
               std::map<std::string, std::unique_ptr<TensorSource>> parts);

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  void read(const std::string& name, int64_t begin, ElementSpan out) const override;
  std::optional<Place> place_of(const std::string& name) const override;
  std::vector<SummedStorage> storages_of(const std::string& name) const override;

 private:
  void check_promises(const WeightIndex& index) const;

  std::string path_;
  std::map<std::string, std::unique_ptr<TensorSource>> parts_;
  std::vector<StoredTensor> tensors_;
  std::vector<const TensorSource*> sources_;  // of tensors_
};

}  // namespace fullshard::formats
