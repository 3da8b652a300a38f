// Tensors of a torch.distributed.checkpoint folder as a source.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/formats/dcp_metadata.h"
#include "fullshard/formats/tensor_source.h"

namespace fullshard {

class DcpSource : public TensorSource {
 public:
  // `flat_names`: the name that a tensor has here -> the one in the metadata.
  DcpSource(std::string folder, std::shared_ptr<const DcpMetadata> metadata,
            const std::map<std::string, std::string>& flat_names);

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  void read(const std::string& name, int64_t begin, ElementSpan out) const override;

 private:
  std::string folder_;
  std::shared_ptr<const DcpMetadata> metadata_;
  std::vector<StoredTensor> tensors_;
  std::vector<const DcpTensor*> places_;  // of tensors_
};

}  // namespace fullshard
