// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/masked_data.h"

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::data {
namespace {

constexpr int64_t kNotAsked = -100;

}  // namespace

MaskedData::MaskedData(TokenStream stream, const Tokenizer& tokenizer, const Options& options)
    : stream_(std::move(stream)),
      tokenizer_(tokenizer),
      sequence_length_(options.sequence_length),
      mask_probability_(options.mask_probability),
      vocabulary_(tokenizer.vocabulary()),
      cls_(special("[CLS]", tokenizer.cls())),
      sep_(special("[SEP]", tokenizer.sep())),
      mask_(special("[MASK]", tokenizer.mask())) {
  if (options.vocabulary > 0) vocabulary_ = std::min(vocabulary_, options.vocabulary);
  if (sequence_length_ < 3 || !(mask_probability_ > 0 && mask_probability_ <= 1)) {
    fail_as(
        ErrorKind::usage,
        "masked-lm: sequence length {} and mask probability {}; expected at least 3, and above 0 "
        "up to 1",
        sequence_length_, mask_probability_);
  }
  size_ = stream_.size() / (sequence_length_ - 2);
  if (size_ < 1) {
    fail_as(ErrorKind::input,
            "{}: {} tokens, expected at least {}: one sequence of {} without [CLS] and [SEP]; give "
            "more data, or a shorter sequence length",
            stream_.name(), stream_.size(), sequence_length_ - 2, sequence_length_);
  }
  if (options.max_samples > 0) size_ = std::min(size_, options.max_samples);
}

int64_t MaskedData::special(const char* name, std::optional<int32_t> token) const {
  if (!token) {
    fail_as(ErrorKind::input,
            "masked-lm: the tokenizer has no {} token; use a tokenizer of a masked language model, "
            "as BERT's",
            name);
  }
  return *token;
}

int64_t MaskedData::max_token() const {
  const int64_t most = stream_.max_token();
  return most < 0 ? most : std::max({most, cls_, sep_, mask_});
}

TokenBatch MaskedData::batch(std::span<const int64_t> examples, uint64_t seed,
                             int64_t epoch) const {
  const auto length = static_cast<size_t>(sequence_length_);
  TokenBatch batch{.rows = std::ssize(examples), .columns = sequence_length_};
  batch.input_ids.resize(examples.size() * length);
  batch.labels.resize(examples.size() * length, kNotAsked);
  for (size_t row = 0; row < examples.size(); ++row) {
    const int64_t example = examples[row];
    check(example >= 0 && example < size_, "data: no example {}, there are {}", example, size_);
    const auto ids = std::span(batch.input_ids).subspan(row * length, length);
    const auto inner = ids.subspan(1, length - 2);
    stream_.read(example * std::ssize(inner), inner);
    ids.front() = cls_;
    ids.back() = sep_;
    CounterRandom random(seed, static_cast<uint64_t>(epoch), static_cast<uint64_t>(example));
    hide(inner, std::span(batch.labels).subspan(row * length + 1, inner.size()), random);
  }
  return batch;
}

void MaskedData::hide(std::span<int64_t> ids, std::span<int64_t> labels,
                      CounterRandom& random) const {
  std::vector<size_t> candidates;
  bool any = false;
  const auto ask = [&](size_t i) {
    labels[i] = ids[i];
    ids[i] = replacement(ids[i], random);
    any = true;
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    if (tokenizer_.is_special(static_cast<int32_t>(ids[i]))) continue;
    candidates.push_back(i);
    if (random.uniform() < mask_probability_) ask(i);
  }
  if (!any && !candidates.empty()) ask(candidates[random.below(candidates.size())]);
}

int64_t MaskedData::replacement(int64_t token, CounterRandom& random) const {
  const uint64_t choice = random.below(10);
  if (choice < 8) return mask_;
  if (choice == 9) return token;
  // Special tokens are few, so this ends soon, and always after the last try.
  for (int tries = 0; tries < 64; ++tries) {
    const auto other = static_cast<int64_t>(random.below(static_cast<uint64_t>(vocabulary_)));
    if (!tokenizer_.is_special(static_cast<int32_t>(other))) return other;
  }
  return token;
}

std::string MaskedData::describe() const {
  return fmt::format("{} sequences of {} with masks from {} tokens ({})", size_, sequence_length_,
                     stream_.size(), stream_.name());
}

}  // namespace fullshard::data
