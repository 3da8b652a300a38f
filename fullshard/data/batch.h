// SPDX-License-Identifier: Apache-2.0
// What a data set gives to a training loop: rows of token ids. No tensors: the trainer wraps them.
#pragma once

#include <cstdint>
#include <vector>

namespace fullshard {

// Row-major [rows, columns] of each part; parts that do not apply are empty. Labels are -100 where
// there is no loss.
struct TokenBatch {
  int64_t rows = 0;
  int64_t columns = 0;          // of input_ids
  int64_t decoder_columns = 0;  // of labels and decoder_mask, for encoder-decoder models
  // Rows, and those of labels, may be padded up to these lengths; 0: no further.
  int64_t most_columns = 0, most_decoder_columns = 0;
  std::vector<int64_t> input_ids = {};
  std::vector<int64_t> attention_mask = {};  // empty: nothing is hidden
  std::vector<int64_t> labels = {};
  bool labels_are_next = false;              // labels[s] is the token after input s
  bool labels_are_classes = false;           // one for each row
  std::vector<int64_t> token_type_ids = {};  // of input_ids; empty: all 0
  bool is_stand_in = false;                  // for a rank without examples: nothing in it counts
  int64_t num_padding = 0;  // without a mask: inputs after causal rows, which no other input sees
  // Packed rows: the lengths of each row's documents, in order, with the padding as the last; their
  // sum is `columns`. Empty: each row is one document.
  std::vector<std::vector<int64_t>> document_lengths = {};

  // How many inputs of each row are real, where the mask hides all that follow them; how many
  // labels there are up to the last one. Empty: no row has any padding, the mask hides something
  // else, or a row is empty.
  std::vector<int64_t> lengths() const;
  std::vector<int64_t> label_lengths() const;

  int64_t label_columns() const;
  int64_t num_labels() const;  // not -100
  int64_t num_tokens() const;  // not padding, both sides
};

}  // namespace fullshard
