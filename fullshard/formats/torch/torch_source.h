// SPDX-License-Identifier: Apache-2.0
// The state dict in a file of torch.save as a source of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/formats/tensor_source.h"
#include "fullshard/formats/torch/torch_file.h"

namespace fullshard::formats {

// The file holds a dictionary of names to tensors, or one such under "state_dict", "model" or
// "module". Values that are not tensors are skipped.
class TorchSource : public TensorSource {
 public:
  explicit TorchSource(const std::string& path);

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  void read(const std::string& name, int64_t begin, ElementSpan out) const override;
  std::vector<SummedStorage> storages_of(const std::string& name) const override;

 private:
  TorchFile file_;
  std::vector<StoredTensor> tensors_;
  std::vector<TorchTensor> places_;  // of tensors_
};

}  // namespace fullshard::formats
