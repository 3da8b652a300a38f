// Where named tensors are read from: a safetensors file, a folder of them, a torch file. Nothing is
// read until asked for, and then only the range asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard {

struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  std::string file;  // for messages

  int64_t numel() const;
};

// Thread-safe for reading. Errors are of the kind `input` and name file and tensor.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual const std::vector<StoredTensor>& tensors() const = 0;  // sorted by name
  const StoredTensor* find(const std::string& name) const;       // null: not there

  // Elements [begin, begin + out.numel()) of a tensor, row-major, into `out` (1-D, contiguous,
  // CPU), converted to its dtype. At most 4 MiB beside `out` is held.
  virtual void read(const std::string& name, int64_t begin, at::Tensor out) const = 0;
  at::Tensor read_whole(const std::string& name) const;  // in its own dtype and shape
};

}  // namespace fullshard
