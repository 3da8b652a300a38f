// SPDX-License-Identifier: Apache-2.0
// Writes files as torch.save does, data only: torch.load(weights_only=True) reads them. Storages
// are planned, then streamed in bounded memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/formats/element_span.h"
#include "fullshard/formats/pickle/pickle_writer.h"

namespace fullshard::formats {

// Call in this order: pickle() to write values, put_tensor() where a tensor belongs; begin(); the
// values of every storage; finish(), which checks that all were written, fsyncs and renames the
// file. Until then it is PATH.part, which the destructor removes.
class TorchWriter {
 public:
  explicit TorchWriter(std::string path);
  ~TorchWriter();
  TorchWriter(const TorchWriter&) = delete;
  TorchWriter& operator=(const TorchWriter&) = delete;

  PickleWriter& pickle();
  size_t add_storage(at::ScalarType dtype, int64_t numel);
  // A contiguous tensor from element `first` of a storage on. Several may share one.
  void put_tensor(size_t storage, const std::vector<int64_t>& shape, int64_t first = 0);

  void begin();
  // The next elements of a storage, cast in blocks. Several threads may write, each storage
  // by one of them.
  void write_next(size_t storage, const ElementSpan& values);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fullshard::formats
