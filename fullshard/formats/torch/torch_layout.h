// SPDX-License-Identifier: Apache-2.0
// A file as torch.save writes it, before its values are there: the pickle, and where each storage
// lies in the archive.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/formats/pickle/pickle_writer.h"
#include "fullshard/formats/zip_layout.h"

namespace fullshard::formats {

struct PlannedStorage {
  at::ScalarType dtype = at::kFloat;
  int64_t numel = 0;
  size_t slot = 0;  // of the archive, after lay_out()
};

// Call in this order: pickle() to write values, put_tensor() where a tensor belongs; lay_out().
class TorchLayout {
 public:
  PickleWriter& pickle() { return pickle_; }
  size_t add_storage(at::ScalarType dtype, int64_t numel);
  // A contiguous tensor from element `first` of a storage on. Several may share one.
  void put_tensor(size_t storage, const std::vector<int64_t>& shape, int64_t first);
  void lay_out();

  const std::vector<PlannedStorage>& storages() const { return storages_; }
  ZipLayout& zip() { return zip_; }
  const ZipSlot& slot_of(size_t storage) const { return zip_.slot(storages_[storage].slot); }
  // Where the entries that are not storages lie, and their bytes.
  std::vector<std::pair<int64_t, std::string>> texts() const;

 private:
  void add_text(const std::string& name, std::string bytes);

  PickleWriter pickle_;
  std::vector<PlannedStorage> storages_;
  ZipLayout zip_;
  std::vector<std::pair<size_t, std::string>> texts_;  // by slot
};

}  // namespace fullshard::formats
