// SPDX-License-Identifier: Apache-2.0
// A source of named tensors: a safetensors file, a folder of them, a torch file. Nothing is read
// until it is requested, and then only the requested range.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/formats/element_span.h"

namespace fullshard {

struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  std::string file;  // for messages

  int64_t numel() const;
};

// A range of a file that has its own checksum.
struct SummedStorage {
  std::string file;
  int64_t offset = 0;
  int64_t bytes = 0;
  std::function<void()> check;  // reads what was not read yet and throws when the sum is wrong
};

// Thread-safe for reading. Errors are of the kind `input` and name file and tensor.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual const std::vector<StoredTensor>& tensors() const = 0;  // sorted by name
  const StoredTensor* find(const std::string& name) const;       // null: not there

  // Elements [begin, begin + out.numel) of a tensor, row-major, into `out`, converted to its dtype.
  // At most 4 MiB in addition to `out` is held. (Whole tensors: tensor_io/read_tensor.h.)
  virtual void read(const std::string& name, int64_t begin, ElementSpan out) const = 0;

  // Where its values lie in a file contiguously, row-major, in the stored dtype; nothing if they do
  // not, or if that is unknown. The descriptor is the source's own.
  struct Place {
    int descriptor = -1;
    int64_t offset = 0;
  };
  virtual std::optional<Place> place_of(const std::string& name) const;

  // Where the values of a tensor lie, if the file has checksums that reading alone may not have
  // compared: see check_sums_of(). They borrow from the source.
  virtual std::vector<SummedStorage> storages_of(const std::string& name) const;
};

}  // namespace fullshard
