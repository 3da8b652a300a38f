// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/documents/packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::data {

std::vector<std::vector<int64_t>> pack_documents(std::span<const int64_t> lengths,
                                                 int64_t capacity) {
  const auto length_of = [&](int64_t document) { return lengths[static_cast<size_t>(document)]; };
  std::vector<int64_t> longest_first(lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), int64_t{0});
  std::ranges::stable_sort(longest_first, std::greater(), length_of);
  std::vector<std::vector<int64_t>> sequences;
  std::set<std::pair<int64_t, size_t>> room;  // the free length of a sequence, and its number
  for (const int64_t document : longest_first) {
    const int64_t length = length_of(document);
    check(length > 0 && length <= capacity, "packing: a document of {} in sequences of {}", length,
          capacity);
    const auto found = room.lower_bound({length, 0});
    size_t sequence = sequences.size();
    int64_t left = capacity;
    if (found == room.end()) {
      sequences.emplace_back();
    } else {
      std::tie(left, sequence) = *found;
      room.erase(found);
    }
    sequences[sequence].push_back(document);
    if (left > length) room.emplace(left - length, sequence);
  }
  for (auto& documents : sequences) std::ranges::sort(documents);
  std::ranges::sort(sequences, {}, [](const auto& documents) { return documents.front(); });
  return sequences;
}

}  // namespace fullshard::data
