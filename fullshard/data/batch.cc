// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/batch.h"

#include <algorithm>
#include <numeric>

namespace fullshard {
namespace {

int64_t count_asked(const std::vector<int64_t>& labels) {
  return static_cast<int64_t>(labels.size()) - std::ranges::count(labels, int64_t{-100});
}

// The length of each row up to its last element that is not `padding`; empty where a row has no
// other element, or no row has any padding.
std::vector<int64_t> lengths_of(const std::vector<int64_t>& values, int64_t columns,
                                int64_t padding) {
  std::vector<int64_t> lengths;
  bool has_padding = false;
  for (auto begin = values.begin(); begin < values.end(); begin += columns) {
    auto end = begin + columns;
    while (end > begin && *(end - 1) == padding) --end;
    if (end == begin) return {};
    lengths.push_back(end - begin);
    has_padding = has_padding || lengths.back() < columns;
  }
  return has_padding ? lengths : std::vector<int64_t>();
}

}  // namespace

std::vector<int64_t> TokenBatch::lengths() const {
  const auto found = lengths_of(attention_mask, columns, 0);
  const int64_t num_real =
      std::ssize(attention_mask) - std::ranges::count(attention_mask, int64_t{0});
  return std::reduce(found.begin(), found.end()) == num_real ? found : std::vector<int64_t>();
}

std::vector<int64_t> TokenBatch::label_lengths() const {
  return lengths_of(labels, label_columns(), -100);
}

int64_t TokenBatch::label_columns() const {
  if (labels_are_classes) return 1;
  return decoder_columns > 0 ? decoder_columns : columns;
}

int64_t TokenBatch::num_labels() const { return count_asked(labels); }

int64_t TokenBatch::num_tokens() const {
  if (is_stand_in) return 0;
  const int64_t inputs = attention_mask.empty()
                             ? static_cast<int64_t>(input_ids.size()) - num_padding
                             : std::ranges::count(attention_mask, int64_t{1});
  return decoder_columns > 0 ? inputs + count_asked(labels) : inputs;
}

}  // namespace fullshard
