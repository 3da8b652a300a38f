// SPDX-License-Identifier: Apache-2.0
// What a data set hands to a training loop: rows of token ids. No tensors: the trainer wraps them.
#pragma once

#include <cstdint>
#include <vector>

namespace fullshard {

// Row-major [rows, columns] of each part; parts that do not apply are empty. Labels are -100 where
// nothing is asked.
struct TokenBatch {
  int64_t rows = 0;
  int64_t columns = 0;          // of input_ids
  int64_t decoder_columns = 0;  // of labels and decoder_mask, for encoder-decoder models
  std::vector<int64_t> input_ids = {};
  std::vector<int64_t> attention_mask = {};  // empty: every token counts
  std::vector<int64_t> labels = {};
  bool labels_are_next = false;  // labels[s] is the token after input s
  bool is_stand_in = false;      // of a rank without examples: nothing in it counts

  int64_t num_labels() const;  // not -100
  int64_t num_tokens() const;  // not padding, both sides
};

}  // namespace fullshard
