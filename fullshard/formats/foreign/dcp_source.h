// SPDX-License-Identifier: Apache-2.0
// Tensors of a torch.distributed.checkpoint folder as a source.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/formats/foreign/dcp_metadata.h"
#include "fullshard/formats/tensor_source.h"

namespace fullshard::formats {

class EntrySum;

class DcpSource : public TensorSource {
 public:
  // `flat_names`: the name that a tensor has here -> the one in the metadata.
  DcpSource(std::string folder, std::shared_ptr<const DcpMetadata> metadata,
            const std::map<std::string, std::string>& flat_names);

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  void read(const std::string& name, int64_t begin, ElementSpan out) const override;
  std::vector<SummedStorage> storages_of(const std::string& name) const override;

 private:
  // Items are reopened for every read; what was summed of an item so far is kept here.
  using SumOf = std::map<std::pair<std::string, int64_t>, std::shared_ptr<EntrySum>>;
  std::shared_ptr<EntrySum> kept_sum(const DcpItem& item, std::shared_ptr<EntrySum> fresh) const;
  void check_item(const DcpTensor& tensor, const DcpChunk& chunk, const std::string& what) const;

  std::string folder_;
  std::shared_ptr<const DcpMetadata> metadata_;
  std::vector<StoredTensor> tensors_;
  std::vector<const DcpTensor*> places_;  // of tensors_
  mutable std::mutex mutex_;
  mutable SumOf sums_;  // by file and offset
};

}  // namespace fullshard::formats
