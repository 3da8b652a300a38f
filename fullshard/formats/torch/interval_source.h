// SPDX-License-Identifier: Apache-2.0
// Tensors that lie in pieces in several files of torch.save, as a source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/formats/tensor_source.h"
#include "fullshard/formats/torch/torch_file.h"

namespace fullshard::formats {

// Part of a tensor in a file: elements [first, first + numel) of it, row-major.
struct FileInterval {
  std::shared_ptr<const TorchFile> file;
  std::shared_ptr<const TorchTensor> tensor;
  int64_t first = 0;
  int64_t numel = 0;
};

class IntervalSource : public TensorSource {
 public:
  // The intervals one after the other are the tensor, or more than it: what lies beyond its last
  // element is padding. Too few are an error that names the tensor, and so is a name that comes
  // twice. Its dtype is that of the intervals.
  void add(std::string name, std::vector<int64_t> shape,
           const std::vector<FileInterval>& intervals);
  // Another name for a tensor; ignored if there is no such tensor or the name is taken.
  void add_name(const std::string& name, const std::string& same_as);

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  void read(const std::string& name, int64_t begin, ElementSpan out) const override;
  std::vector<SummedStorage> storages_of(const std::string& name) const override;

 private:
  struct Piece {
    int64_t begin = 0;  // of the tensor's elements
    FileInterval interval;
  };
  using Pieces = std::vector<Piece>;

  void insert(StoredTensor tensor, std::shared_ptr<const Pieces> pieces);

  std::vector<StoredTensor> tensors_;
  std::vector<std::shared_ptr<const Pieces>> pieces_;  // of tensors_, in the order of elements
};

}  // namespace fullshard::formats
