// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/batch.h"

#include <algorithm>

namespace fullshard {
namespace {

int64_t count_asked(const std::vector<int64_t>& labels) {
  return static_cast<int64_t>(labels.size()) - std::ranges::count(labels, int64_t{-100});
}

}  // namespace

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
