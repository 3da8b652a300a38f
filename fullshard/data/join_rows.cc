// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/join_rows.h"

#include <algorithm>

#include "fullshard/base/error.h"

namespace fullshard::data {
namespace {

constexpr int64_t kNoLabelThere = -100;

struct Widths {
  int64_t from = 0, to = 0;
};

void copy_rows(const std::vector<int64_t>& from, const std::vector<int64_t>& places,
               const Widths& widths, std::vector<int64_t>& to) {
  for (size_t row = 0; row < places.size() && !from.empty(); ++row) {
    std::copy_n(from.begin() + static_cast<int64_t>(row) * widths.from, widths.from,
                to.begin() + places[row] * widths.to);
  }
}

// Copies each row's documents, one per row where a part is not packed, with the padding as the
// last.
void copy_documents(const TokenBatch& part, const std::vector<int64_t>& places,
                    TokenBatch& joined) {
  for (size_t row = 0; row < places.size(); ++row) {
    auto lengths = part.document_lengths.empty() ? std::vector<int64_t>{part.columns}
                                                 : part.document_lengths[row];
    const int64_t padding = joined.columns - part.columns;
    if (padding > 0) lengths.push_back(padding);
    joined.document_lengths[static_cast<size_t>(places[row])] = std::move(lengths);
  }
}

}  // namespace

TokenBatch join_rows(const std::vector<TokenBatch>& parts,
                     const std::vector<std::vector<int64_t>>& places) {
  check(!parts.empty() && parts.size() == places.size(), "data: {} parts of a batch with {} places",
        parts.size(), places.size());
  TokenBatch joined;
  joined.labels_are_next = parts[0].labels_are_next;
  joined.labels_are_classes = parts[0].labels_are_classes;
  bool has_mask = false, is_packed = false;
  for (const TokenBatch& part : parts) {
    check(part.labels_are_next == joined.labels_are_next &&
              part.labels_are_classes == joined.labels_are_classes &&
              part.token_type_ids.empty() == parts[0].token_type_ids.empty() &&
              (part.decoder_columns > 0) == (parts[0].decoder_columns > 0),
          "data: batches for different kinds of models cannot be joined");
    joined.rows += part.rows;
    joined.columns = std::max(joined.columns, part.columns);
    joined.decoder_columns = std::max(joined.decoder_columns, part.decoder_columns);
    joined.most_columns = std::max(joined.most_columns, part.most_columns);
    joined.most_decoder_columns = std::max(joined.most_decoder_columns, part.most_decoder_columns);
    has_mask = has_mask || !part.attention_mask.empty();
    is_packed = is_packed || !part.document_lengths.empty();
  }
  joined.input_ids.resize(static_cast<size_t>(joined.rows * joined.columns), 0);
  joined.labels.resize(static_cast<size_t>(joined.rows * joined.label_columns()), kNoLabelThere);
  if (has_mask) joined.attention_mask.resize(joined.input_ids.size(), 0);
  if (!parts[0].token_type_ids.empty()) joined.token_type_ids.resize(joined.input_ids.size(), 0);
  if (is_packed) joined.document_lengths.resize(static_cast<size_t>(joined.rows));
  for (size_t p = 0; p < parts.size(); ++p) {
    const TokenBatch& part = parts[p];
    const Widths inputs{part.columns, joined.columns};
    copy_rows(part.input_ids, places[p], inputs, joined.input_ids);
    copy_rows(part.token_type_ids, places[p], inputs, joined.token_type_ids);
    copy_rows(part.labels, places[p], {part.label_columns(), joined.label_columns()},
              joined.labels);
    if (has_mask) {
      const std::vector<int64_t> all_real(part.input_ids.size(), 1);
      copy_rows(part.attention_mask.empty() ? all_real : part.attention_mask, places[p], inputs,
                joined.attention_mask);
    }
    joined.num_padding += part.num_padding + part.rows * (joined.columns - part.columns);
    if (is_packed) copy_documents(part, places[p], joined);
  }
  return joined;
}

}  // namespace fullshard::data
