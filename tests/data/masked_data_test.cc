// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "fullshard/data/open_data.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using testing::error_of;
using testing::ToyTokenizer;
using Ids = std::vector<int64_t>;

const ToyTokenizer kMaskedTokenizer;

std::unique_ptr<Dataset> masked(const std::string& path, int64_t length, double probability = 0.15,
                                const Tokenizer& tokenizer = kMaskedTokenizer) {
  return open_data({.paths = {path},
                    .task = Task::masked_lm,
                    .sequence_length = length,
                    .mask_probability = probability},
                   &tokenizer);
}

// The inputs of the model without masks.
Ids restored(const TokenBatch& batch) {
  Ids ids = batch.input_ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (batch.labels[i] != -100) ids[i] = batch.labels[i];
  }
  return ids;
}

TEST(MaskedData, ChunksStandBetweenClsAndSep) {
  const DataFolder folder;
  const auto data =
      masked(folder.write("a.jsonl", "{\"text\": \"abcd\"}\n{\"text\": \"ef\"}\n"), 6);
  EXPECT_EQ(data->size(), 2);
  const TokenBatch batch = data->batch(Ids{0, 1}, 1, 0);
  EXPECT_EQ(restored(batch), (Ids{3, 107, 108, 109, 110, 4, 3, 4, 111, 112, 4, 4}));
  EXPECT_EQ(batch.columns, 6);
  EXPECT_EQ(batch.num_tokens(), 12);
  EXPECT_FALSE(batch.labels_are_next);
  EXPECT_TRUE(batch.attention_mask.empty());
}

TEST(MaskedData, MasksEightyTenTenOfFifteenPerCent) {
  const DataFolder folder;
  std::string text;
  for (int i = 0; i < 126 * 400; ++i) text += static_cast<char>('a' + i % 26);
  const auto data = masked(folder.write("a.txt", text), 128);
  ASSERT_EQ(data->size(), 400);
  int64_t asked = 0, hidden = 0, kept = 0, other = 0;
  for (int64_t example = 0; example < data->size(); ++example) {
    const TokenBatch batch = data->batch(Ids{example}, 7, 2);
    EXPECT_GE(batch.num_labels(), 1);
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      if (batch.labels[i] == -100) continue;
      ++asked;
      hidden += batch.input_ids[i] == ToyTokenizer::kMask;
      kept += batch.input_ids[i] == batch.labels[i];
      other += batch.input_ids[i] != ToyTokenizer::kMask && batch.input_ids[i] != batch.labels[i];
      if (batch.input_ids[i] != ToyTokenizer::kMask) {
        EXPECT_FALSE(kMaskedTokenizer.is_special(static_cast<int32_t>(batch.input_ids[i])));
      }
    }
  }
  // 50,400 tokens: 7,560 expected, four standard deviations are 320.
  EXPECT_NEAR(static_cast<double>(asked), 7560, 320);
  EXPECT_NEAR(static_cast<double>(hidden) / static_cast<double>(asked), 0.8, 0.02);
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(asked), 0.1, 0.015);
  EXPECT_NEAR(static_cast<double>(other) / static_cast<double>(asked), 0.1, 0.015);
}

TEST(MaskedData, AsksForAtLeastOneTokenAndNeverForSpecialOnes) {
  const DataFolder folder;
  // Tokens 1 and 4 are special: only one token of each chunk of four may have a label.
  std::vector<uint16_t> tokens;
  for (int i = 0; i < 100; ++i) tokens.insert(tokens.end(), {1, 107, 4, 1});
  const auto data = masked(folder.write_tokens("a.bin", tokens), 6, 0.001);
  for (int64_t example = 0; example < 100; ++example) {
    const TokenBatch batch = data->batch(Ids{example}, 0, 0);
    EXPECT_EQ(batch.labels, (Ids{-100, -100, 107, -100, -100, -100}));
  }
}

TEST(MaskedData, DependsOnSeedEpochAndExampleOnly) {
  const DataFolder folder;
  const auto data = masked(folder.write("a.txt", std::string(1000, 'x')), 52, 0.5);
  const TokenBatch whole = data->batch(Ids{0, 1, 2, 3}, 5, 6);
  Ids inputs, labels;
  for (const Ids& part : {Ids{0}, Ids{1, 2}, Ids{3}}) {
    const TokenBatch batch = data->batch(part, 5, 6);
    inputs.insert(inputs.end(), batch.input_ids.begin(), batch.input_ids.end());
    labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
  }
  EXPECT_EQ(inputs, whole.input_ids);
  EXPECT_EQ(labels, whole.labels);
  EXPECT_NE(data->batch(Ids{0}, 5, 7).labels, data->batch(Ids{0}, 5, 6).labels);
  EXPECT_NE(data->batch(Ids{0}, 6, 6).labels, data->batch(Ids{0}, 5, 6).labels);
  EXPECT_NE(data->batch(Ids{1}, 5, 6).labels, data->batch(Ids{0}, 5, 6).labels);
}

class NoMask final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool special) const override {
    return kMaskedTokenizer.encode(text, special);
  }
  std::string decode(const std::vector<int32_t>&, bool) const override { return {}; }
  int64_t vocabulary() const override { return 266; }
  std::optional<int32_t> id_of(std::string_view) const override { return {}; }
  std::optional<std::string> token_of(int32_t) const override { return {}; }
  std::optional<int32_t> bos() const override { return {}; }
  std::optional<int32_t> eos() const override { return {}; }
  std::optional<int32_t> pad() const override { return {}; }
  std::optional<int32_t> mask() const override { return {}; }
  std::optional<int32_t> cls() const override { return 3; }
  std::optional<int32_t> sep() const override { return 4; }
  bool is_special(int32_t) const override { return false; }
};

TEST(MaskedData, SaysWhatItLacks) {
  const DataFolder folder;
  const auto path = folder.write("a.txt", "abc");
  EXPECT_EQ(error_of([&] { masked(path, 6, 0.15, NoMask()); }, folder),
            "masked-lm: the tokenizer has no [MASK] token; use a tokenizer of a masked language "
            "model, as BERT's");
  EXPECT_EQ(error_of([&] { masked(path, 7); }, folder),
            "a.txt: 4 tokens, expected at least 5: one sequence of 7 without [CLS] and [SEP]; give "
            "more data, or a shorter sequence length");
  EXPECT_EQ(
      error_of([&] { masked(path, 2); }, folder, ErrorKind::usage),
      "masked-lm: sequence length 2 and mask probability 0.15; expected at least 3, and above "
      "0 up to 1");
  EXPECT_EQ(error_of(
                [&] {
                  open_data({.paths = {folder.write("b.bin", "xy")}, .task = Task::masked_lm},
                            nullptr);
                },
                folder),
            "b.bin: masked-lm needs a tokenizer; name one, or \"bytes\"");
}

}  // namespace
}  // namespace fullshard::data
