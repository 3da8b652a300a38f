// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/document_data.h"

#include <algorithm>
#include <numeric>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/data/documents/packing.h"
#include "fullshard/data/text/in_order.h"
#include "fullshard/data/text/text_parts.h"
#include "fullshard/data/tokens/token_stream.h"

namespace fullshard::data {
namespace {

constexpr int64_t kNotLearnt = -100;
constexpr int64_t kColumnsTogether = 8;

void check_are_documents(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const FileKind kind = kind_of(path);
    if (kind == FileKind::text || kind == FileKind::json) continue;
    fail_as(ErrorKind::input, "{}: is {}, expected documents: JSON or text", path, name_of(kind));
  }
}

// Without a tokenizer, so that texts stay whole.
std::vector<TextBlock> document_blocks_of(std::span<const TextPart> parts, int64_t block_bytes) {
  std::vector<TextBlock> blocks;
  for (const TextPart& part : parts) {
    const auto found = blocks_of_part(part, /*tokenizer=*/nullptr, block_bytes);
    blocks.insert(blocks.end(), found.begin(), found.end());
  }
  return blocks;
}

std::vector<EncodedDocument> encode_block(const TextBlock& block, const std::string& field,
                                          const DocumentEncoder& encoder) {
  check_is_text(block);
  std::vector<DocumentRow> rows;
  if (block.kind == FileKind::text) {
    rows.push_back({.number = 1, .text = std::string(block.text)});
  } else {
    rows = read_rows(block, field);
  }
  std::vector<EncodedDocument> documents;
  documents.reserve(rows.size());
  for (const DocumentRow& row : rows) {
    documents.push_back(encoder.encode(row, block.place(row.number)));
  }
  return documents;
}

}  // namespace

DocumentData::DocumentData(const DocumentOptions& options, const Tokenizer& tokenizer)
    : name_(name_of_files(options.files)),
      sequence_length_(options.sequence_length),
      packs_(options.packs),
      pad_(tokenizer.pad().value_or(tokenizer.eos().value_or(0))) {
  check_are_documents(options.files);
  const DocumentEncoder encoder(tokenizer, options.encoder);
  const auto is_enough = [&] {
    return options.max_samples > 0 && num_rows_ == options.max_samples;
  };
  for_text_parts(options.files, {}, [&](std::span<const TextPart> parts) {
    const std::vector<TextBlock> blocks = document_blocks_of(parts, options.block_bytes);
    in_order(
        std::ssize(blocks), options.num_threads > 0 ? options.num_threads : num_allowed_cores(),
        [&](int64_t i) {
          return encode_block(blocks[static_cast<size_t>(i)], options.field, encoder);
        },
        [&](const std::vector<EncodedDocument>& documents) {
          for (const EncodedDocument& document : documents) {
            if (is_enough()) return false;
            add(document);
          }
          return !is_enough();
        });
    return !is_enough();
  });
  if (ends_.empty()) {
    fail_as(ErrorKind::input,
            "{}: {} rows, none with a token to learn among its first {}; give a longer sequence "
            "length, or --loss-on all",
            name_, num_rows_, sequence_length_ + 1);
  }
  arrange();
}

void DocumentData::add(const EncodedDocument& document) {
  ++num_rows_;
  const std::span<const int32_t> ids = document.ids;
  const auto most = static_cast<size_t>(sequence_length_) + 1;
  const size_t num_before = ends_.size();
  if (document.kind == RowKind::text) {  // in pieces that share a token, which is predicted once
    for (size_t first = 0; first + 1 < ids.size(); first += most - 1) {
      add_piece(ids.subspan(first, std::min(most, ids.size() - first)), document.is_learnt, first);
    }
  } else {
    if (ids.size() > most) ++num_cut_;
    add_piece(ids.subspan(0, std::min(most, ids.size())), document.is_learnt, 0);
  }
  if (ends_.size() == num_before) ++num_left_out_;
}

void DocumentData::add_piece(std::span<const int32_t> ids, const std::vector<bool>& is_learnt,
                             size_t first) {
  bool learns = false;
  for (size_t i = 1; i < ids.size(); ++i) learns = learns || is_learnt[first + i];
  if (!learns) return;
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  for (size_t i = 0; i < ids.size(); ++i) is_learnt_.push_back(is_learnt[first + i]);
  ends_.push_back(tokens_.size());
  max_token_ = std::max<int64_t>({max_token_, pad_, std::ranges::max(ids)});
}

void DocumentData::arrange() {
  const auto num_documents = std::ssize(ends_);
  if (packs_) {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < num_documents; ++i) lengths.push_back(num_inputs(i));
    sequences_ = pack_documents(lengths, sequence_length_);
  } else {
    for (int64_t i = 0; i < num_documents; ++i) sequences_.push_back({i});
  }
}

size_t DocumentData::begin_of(int64_t document) const {
  return document == 0 ? 0 : ends_[static_cast<size_t>(document - 1)];
}

int64_t DocumentData::num_inputs(int64_t document) const {
  return static_cast<int64_t>(ends_[static_cast<size_t>(document)] - begin_of(document)) - 1;
}

int64_t DocumentData::row_length(int64_t example) const {
  check(example >= 0 && example < size(), "data: no example {}, there are {}", example, size());
  int64_t length = 0;
  for (const int64_t document : sequences_[static_cast<size_t>(example)]) {
    length += num_inputs(document);
  }
  return length;
}

TokenBatch DocumentData::batch(std::span<const int64_t> examples, uint64_t, int64_t) const {
  int64_t longest = 1;
  for (const int64_t example : examples) longest = std::max(longest, row_length(example));
  TokenBatch batch{.rows = std::ssize(examples),
                   .columns = std::min(round_up(longest, kColumnsTogether), sequence_length_)};
  batch.labels_are_next = true;
  batch.input_ids.resize(static_cast<size_t>(batch.rows * batch.columns), pad_);
  batch.labels.resize(batch.input_ids.size(), kNotLearnt);
  for (int64_t row = 0; row < batch.rows; ++row) {
    fill_row(examples[static_cast<size_t>(row)], row, batch);
  }
  return batch;
}

void DocumentData::fill_row(int64_t example, int64_t row, TokenBatch& batch) const {
  auto at = static_cast<size_t>(row * batch.columns);
  std::vector<int64_t> lengths;
  for (const int64_t document : sequences_[static_cast<size_t>(example)]) {
    const size_t begin = begin_of(document);
    const int64_t count = num_inputs(document);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i, ++at) {
      batch.input_ids[at] = tokens_[begin + i];
      if (is_learnt_[begin + i + 1]) batch.labels[at] = tokens_[begin + i + 1];
    }
    lengths.push_back(count);
  }
  const int64_t padding = batch.columns - std::reduce(lengths.begin(), lengths.end());
  batch.num_padding += padding;
  if (!packs_) return;
  if (padding > 0) lengths.push_back(padding);
  batch.document_lengths.push_back(std::move(lengths));
}

std::string DocumentData::describe() const {
  return fmt::format("{} {} from {} rows ({})", size(),
                     packs_ ? fmt::format("packed sequences of {}", sequence_length_)
                            : fmt::format("documents of up to {} tokens", sequence_length_),
                     num_rows_, name_);
}

std::vector<std::string> DocumentData::warnings() const {
  std::vector<std::string> warnings;
  if (num_cut_ > 0) {
    warnings.push_back(fmt::format("{}: {} of {} rows are longer than {} tokens and are cut", name_,
                                   num_cut_, num_rows_, sequence_length_ + 1));
  }
  if (num_left_out_ > 0) {
    warnings.push_back(fmt::format("{}: {} of {} rows have no token to learn and are left out",
                                   name_, num_left_out_, num_rows_));
  }
  return warnings;
}

}  // namespace fullshard::data
