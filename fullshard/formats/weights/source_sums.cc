// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/weights/source_sums.h"

#include <map>
#include <utility>

namespace fullshard::formats {

void check_sums_of(const TensorSource& source, const std::vector<std::string>& names, int rank,
                   int num_ranks) {
  std::map<std::pair<std::string, int64_t>, SummedStorage> storages;  // the same order everywhere
  for (const auto& name : names) {
    for (auto& storage : source.storages_of(name)) {
      storages.emplace(std::pair(storage.file, storage.offset), std::move(storage));
    }
  }
  double total = 0;  // bytes; as doubles, whose product with ranks does not overflow
  for (const auto& [place, storage] : storages) total += static_cast<double>(storage.bytes);
  double before = 0;
  for (const auto& [place, storage] : storages) {
    const int owner = total == 0 ? 0 : static_cast<int>(before * num_ranks / total);
    before += static_cast<double>(storage.bytes);
    if (owner == rank) storage.check();
  }
}

void check_sums_of(const TensorSource& source) {
  std::vector<std::string> names;
  for (const auto& tensor : source.tensors()) names.push_back(tensor.name);
  check_sums_of(source, names);
}

}  // namespace fullshard::formats
