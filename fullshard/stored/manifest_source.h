// SPDX-License-Identifier: Apache-2.0
// A checkpoint of our own as a source of tensors, independent of any model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/formats/tensor_source.h"
#include "fullshard/stored/blocks/buffer_pool.h"
#include "fullshard/stored/manifest.h"

namespace fullshard::stored {

// The weights, or one state of the optimizer. Every block that a read touches is read completely
// and compared with its checksum.
class ManifestSource : public TensorSource {
 public:
  // `state` empty: the weights, under all their names. A state's tensors have their first name.
  ManifestSource(std::string folder, std::shared_ptr<const Manifest> manifest, std::string state);

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  void read(const std::string& name, int64_t begin, ElementSpan out) const override;

 private:
  std::string folder_;
  std::shared_ptr<const Manifest> manifest_;
  std::string state_;
  std::vector<StoredTensor> tensors_;
  std::vector<const StoredValues*> values_;  // of tensors_
  mutable BufferPool buffers_;
};

}  // namespace fullshard::stored
