// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/class_data.h"

#include <algorithm>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/data/text/in_order.h"
#include "fullshard/data/tokens/token_stream.h"

namespace fullshard::data {
namespace {

constexpr int64_t kClassColumnsTogether = 8;

struct EncodedClassRow {
  std::vector<int32_t> ids = {};
  size_t num_first = 0;  // of type 0
  int64_t label = 0;
  bool was_cut = false;
};

// How many tokens a text and its pair (none: of no tokens) keep when both share `room`, by the
// LongestFirst strategy of transformers' tokenizers: the shorter one keeps all of its tokens, up to
// half; of equal ones the second gets the odd token.
std::pair<size_t, size_t> kept_of_pair(size_t first, size_t second, size_t room) {
  if (first + second <= room) return {first, second};
  const size_t shorter = std::min({first, second, room / 2});
  return first > second ? std::pair(room - shorter, shorter) : std::pair(shorter, room - shorter);
}

void cut(std::vector<int32_t>& ids, size_t size, bool cuts_left) {
  const auto num_cut = static_cast<std::ptrdiff_t>(ids.size() - size);
  const auto begin = cuts_left ? ids.begin() : ids.end() - num_cut;
  ids.erase(begin, begin + num_cut);
}

class ClassRowEncoder {
 public:
  ClassRowEncoder(const ClassDataOptions& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer) {
    if (!tokenizer.cls() || !tokenizer.sep()) {
      fail_as(ErrorKind::input,
              "classification: the tokenizer has no [CLS] and [SEP] tokens; use a tokenizer as "
              "BERT's");
    }
  }

  std::vector<EncodedClassRow> operator()(const TextBlock& block) const {
    check_is_text(block);
    std::vector<EncodedClassRow> encoded;
    for (const ClassRow& row : read_class_rows(block, options_.field)) {
      encoded.push_back(encode(row));
      encoded.back().label = class_of(row, options_.classes, block);
      check_vocabulary(encoded.back(), block.place(row.number));
    }
    return encoded;
  }

 private:
  EncodedClassRow encode(const ClassRow& row) const {
    EncodedClassRow encoded;
    std::vector<int32_t> first = tokenizer_.encode(row.text, false), second;
    if (row.text_pair) second = tokenizer_.encode(*row.text_pair, false);
    const size_t num_marks = row.text_pair ? 3 : 2;
    const auto most = static_cast<size_t>(options_.sequence_length) - num_marks;
    encoded.was_cut = first.size() + second.size() > most;
    const auto [num_first, num_second] = kept_of_pair(first.size(), second.size(), most);
    cut(first, num_first, tokenizer_.cuts_left());
    cut(second, num_second, tokenizer_.cuts_left());
    encoded.ids.push_back(*tokenizer_.cls());
    encoded.ids.insert(encoded.ids.end(), first.begin(), first.end());
    encoded.ids.push_back(*tokenizer_.sep());
    encoded.num_first = encoded.ids.size();
    if (!row.text_pair) return encoded;
    encoded.ids.insert(encoded.ids.end(), second.begin(), second.end());
    encoded.ids.push_back(*tokenizer_.sep());
    return encoded;
  }

  void check_vocabulary(const EncodedClassRow& row, const std::string& place) const {
    const int32_t most = std::ranges::max(row.ids);
    if (options_.vocabulary == 0 || most < options_.vocabulary) return;
    fail_as(ErrorKind::input,
            "{}: the tokenizer gives token {}, beyond the model's vocabulary of {}; use the "
            "model's own tokenizer",
            place, most, options_.vocabulary);
  }

  const ClassDataOptions& options_;
  const Tokenizer& tokenizer_;
};

}  // namespace

ClassData::ClassData(const ClassDataOptions& options, const Tokenizer& tokenizer)
    : name_(name_of_files(options.files)),
      sequence_length_(options.sequence_length),
      num_classes_(options.classes.size()),
      pad_(tokenizer.pad().value_or(0)) {
  constexpr int64_t kFewestTokens = 5;  // a pair of one token each
  if (sequence_length_ < kFewestTokens) {
    fail_as(ErrorKind::usage, "classification: sequence length {}, expected at least {}",
            sequence_length_, kFewestTokens);
  }
  const ClassRowEncoder encode(options, tokenizer);
  const auto is_enough = [&] { return options.max_samples > 0 && size() == options.max_samples; };
  const auto keep = [&](const std::vector<EncodedClassRow>& rows) {
    for (const EncodedClassRow& row : rows) {
      if (is_enough()) return false;
      tokens_.insert(tokens_.end(), row.ids.begin(), row.ids.end());
      ends_.push_back(tokens_.size());
      first_sizes_.push_back(row.num_first);
      labels_.push_back(row.label);
      num_cut_ += static_cast<int64_t>(row.was_cut);
    }
    return !is_enough();
  };
  const auto encode_blocks = [&](std::span<const TextBlock> blocks) {
    in_order(
        std::ssize(blocks), options.num_threads > 0 ? options.num_threads : num_allowed_cores(),
        [&](int64_t i) { return encode(blocks[static_cast<size_t>(i)]); }, keep);
    return !is_enough();
  };
  for_class_blocks(options.files, options.field, options.block_bytes, encode_blocks);
  if (labels_.empty()) fail_as(ErrorKind::input, "{}: holds no rows", name_);
  max_token_ = std::max<int64_t>(pad_, std::ranges::max(tokens_));
}

std::span<const int32_t> ClassData::tokens_of(int64_t example) const {
  check(example >= 0 && example < size(), "data: no example {}, there are {}", example, size());
  const auto index = static_cast<size_t>(example);
  const size_t begin = index == 0 ? 0 : ends_[index - 1];
  return std::span(tokens_).subspan(begin, ends_[index] - begin);
}

TokenBatch ClassData::batch(std::span<const int64_t> examples, uint64_t, int64_t) const {
  int64_t longest = 1;
  for (const int64_t example : examples) {
    longest = std::max(longest, std::ssize(tokens_of(example)));
  }
  TokenBatch batch{.rows = std::ssize(examples),
                   .columns = std::min(round_up(longest, kClassColumnsTogether), sequence_length_),
                   .most_columns = sequence_length_};
  batch.labels_are_classes = true;
  batch.input_ids.resize(static_cast<size_t>(batch.rows * batch.columns), pad_);
  batch.attention_mask.resize(batch.input_ids.size(), 0);
  batch.token_type_ids.resize(batch.input_ids.size(), 0);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto example = static_cast<size_t>(examples[static_cast<size_t>(row)]);
    const auto tokens = tokens_of(examples[static_cast<size_t>(row)]);
    const auto begin = row * batch.columns;
    std::ranges::copy(tokens, batch.input_ids.begin() + begin);
    std::fill_n(batch.attention_mask.begin() + begin, tokens.size(), 1);
    const size_t num_first = first_sizes_[example];
    std::fill_n(batch.token_type_ids.begin() + begin + static_cast<int64_t>(num_first),
                tokens.size() - num_first, 1);
    batch.labels.push_back(labels_[example]);
  }
  return batch;
}

std::string ClassData::describe() const {
  return fmt::format("{} rows of {} classes, up to {} tokens ({})", size(), num_classes_,
                     sequence_length_, name_);
}

std::vector<std::string> ClassData::warnings() const {
  if (num_cut_ == 0) return {};
  return {fmt::format("{}: {} of {} rows are longer than {} tokens and are cut", name_, num_cut_,
                      size(), sequence_length_)};
}

}  // namespace fullshard::data
