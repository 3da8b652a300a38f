// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/translation_data.h"

#include <algorithm>
#include <span>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/data/text/in_order.h"
#include "fullshard/data/text/text_parts.h"
#include "fullshard/data/tokens/token_stream.h"

namespace fullshard::data {
namespace {

constexpr int64_t kIgnoredLabel = -100;
constexpr int64_t kPadding = 8;

using Encoded = std::vector<std::vector<int32_t>>;  // source, target, source, …

class PairEncoder {
 public:
  PairEncoder(const TranslationOptions& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer) {}

  Encoded operator()(const TextBlock& block) const {
    Encoded texts;
    check_is_text(block);
    for (const PairRecord& pair : read_pairs(block, options_.languages)) {
      const std::string place = options_.vocabulary > 0 ? block.place(pair.number) : "";
      texts.push_back(encode(options_.source_prefix + pair.source, options_.source_length, place));
      texts.push_back(encode(pair.target, options_.target_length, place));
    }
    return texts;
  }

 private:
  std::vector<int32_t> encode(const std::string& text, int64_t limit,
                              const std::string& place) const {
    std::vector<int32_t> ids = tokenizer_.encode(text, true);
    if (const auto eos = tokenizer_.eos(); eos && (ids.empty() || ids.back() != *eos)) {
      ids.push_back(*eos);  // a decoder must learn to stop, whatever tokens the family adds
    }
    if (std::ssize(ids) > limit) cut(text, static_cast<size_t>(limit), ids);
    const int32_t most = ids.empty() ? 0 : std::ranges::max(ids);
    if (options_.vocabulary > 0 && most >= options_.vocabulary) {
      fail_as(ErrorKind::input,
              "{}: the tokenizer gives token {}, beyond the model's vocabulary of {}; use the "
              "model's own tokenizer",
              place, most, options_.vocabulary);
    }
    return ids;
  }

  // Keeps the tokens that the family puts around a text.
  void cut(const std::string& text, size_t limit, std::vector<int32_t>& ids) const {
    if (tokenizer_.cuts_left()) {
      const auto plain = tokenizer_.encode(text, false);
      const auto found = std::ranges::search(ids, plain);
      const auto num_cut = static_cast<std::ptrdiff_t>(ids.size() - limit);
      if (std::ssize(found) >= num_cut) {
        ids.erase(found.begin(), found.begin() + num_cut);
        return;
      }
    }
    const int32_t last = ids.back();
    ids.resize(limit);
    if (tokenizer_.eos()) ids.back() = last;
  }

  const TranslationOptions& options_;
  const Tokenizer& tokenizer_;
};

std::vector<TextBlock> pair_blocks_of(std::span<const TextPart> parts, int64_t block_bytes) {
  std::vector<TextBlock> blocks;
  for (const TextPart& part : parts) {
    const std::vector<TextBlock> found = blocks_of_part(part, nullptr, block_bytes);
    blocks.insert(blocks.end(), found.begin(), found.end());
  }
  return blocks;
}

// Starts no document of a compressed text, which only a tokenizer could cut.
void check_have_pairs(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const FileKind kind = kind_of(path);
    if (kind != FileKind::text && kind != FileKind::tokens) continue;
    fail_as(ErrorKind::input, "{}: is {}, expected pairs: a table (.tsv, .csv) or JSON", path,
            name_of(kind));
  }
}

}  // namespace

TranslationData::TranslationData(const TranslationOptions& options, const Tokenizer& tokenizer)
    : name_(name_of_files(options.files)),
      source_length_(options.source_length),
      target_length_(options.target_length),
      pad_(tokenizer.pad().value_or(tokenizer.eos().value_or(0))) {
  check_have_pairs(options.files);
  const PairEncoder encode(options, tokenizer);
  const auto is_enough = [&] { return options.max_samples > 0 && size() == options.max_samples; };
  const auto keep = [&](const Encoded& texts) {
    for (const std::vector<int32_t>& ids : texts) {
      if (ends_.size() % 2 == 0 && is_enough()) return false;
      tokens_.insert(tokens_.end(), ids.begin(), ids.end());
      ends_.push_back(tokens_.size());
    }
    return !is_enough();
  };
  const TextPartOptions how{
      .column_names = {"src", "tgt", "source", "target", options.languages.source}};
  for_text_parts(options.files, how, [&](std::span<const TextPart> parts) {
    const std::vector<TextBlock> blocks = pair_blocks_of(parts, options.block_bytes);
    in_order(
        std::ssize(blocks), options.num_threads > 0 ? options.num_threads : num_allowed_cores(),
        [&](int64_t i) { return encode(blocks[static_cast<size_t>(i)]); }, keep);
    return !is_enough();
  });
  if (ends_.empty()) fail_as(ErrorKind::input, "{}: holds no pairs", name_);
  if (!tokens_.empty()) max_token_ = std::max<int64_t>(pad_, std::ranges::max(tokens_));
}

std::span<const int32_t> TranslationData::text(int64_t number) const {
  const auto index = static_cast<size_t>(number);
  const size_t begin = index == 0 ? 0 : ends_[index - 1];
  return std::span(tokens_).subspan(begin, ends_[index] - begin);
}

int64_t TranslationData::padded_length(std::span<const int64_t> examples, int64_t side,
                                       int64_t limit) const {
  int64_t longest = 1;
  for (const int64_t example : examples) {
    longest = std::max(longest, std::ssize(text(2 * example + side)));
  }
  return std::min(round_up(longest, kPadding), limit);
}

TokenBatch TranslationData::batch(std::span<const int64_t> examples, uint64_t, int64_t) const {
  for (const int64_t example : examples) {
    check(example >= 0 && example < size(), "data: no example {}, there are {}", example, size());
  }
  TokenBatch batch{.rows = std::ssize(examples),
                   .columns = padded_length(examples, 0, source_length_),
                   .decoder_columns = padded_length(examples, 1, target_length_),
                   .most_columns = source_length_,
                   .most_decoder_columns = target_length_};
  batch.input_ids.resize(static_cast<size_t>(batch.rows * batch.columns), pad_);
  batch.attention_mask.resize(batch.input_ids.size(), 0);
  batch.labels.resize(static_cast<size_t>(batch.rows * batch.decoder_columns), kIgnoredLabel);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t example = examples[static_cast<size_t>(row)];
    const auto source = text(2 * example);
    std::ranges::copy(source, batch.input_ids.begin() + row * batch.columns);
    std::fill_n(batch.attention_mask.begin() + row * batch.columns, source.size(), 1);
    std::ranges::copy(text(2 * example + 1), batch.labels.begin() + row * batch.decoder_columns);
  }
  return batch;
}

std::string TranslationData::describe() const {
  return fmt::format("{} pairs, sources up to {} and targets up to {} tokens ({})", size(),
                     source_length_, target_length_, name_);
}

}  // namespace fullshard::data
