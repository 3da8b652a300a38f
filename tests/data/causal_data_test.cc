// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "fullshard/data/open_data.h"
#include "fullshard/data/tokens/token_writer.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using testing::error_of;
using testing::ToyTokenizer;
using Ids = std::vector<int64_t>;

std::vector<uint16_t> counting(uint16_t first, size_t count) {
  std::vector<uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(CausalData, SequenceKBeginsAtKSAndLabelsAreTheNextTokens) {
  const DataFolder folder;
  const auto data = open_data(
      {.paths = {folder.write_tokens("a.bin", counting(100, 11))}, .sequence_length = 3}, nullptr);
  EXPECT_EQ(data->size(), 3);
  const TokenBatch batch = data->batch(Ids{2, 0}, 0, 0);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.columns, 3);
  EXPECT_EQ(batch.input_ids, (Ids{106, 107, 108, 100, 101, 102}));
  EXPECT_EQ(batch.labels, (Ids{107, 108, 109, 101, 102, 103}));
  EXPECT_TRUE(batch.labels_are_next);
  EXPECT_TRUE(batch.attention_mask.empty());
  EXPECT_EQ(batch.decoder_columns, 0);
  EXPECT_EQ(batch.num_labels(), 6);
  EXPECT_EQ(batch.num_tokens(), 6);
  EXPECT_EQ(data->max_token(), -1);
  EXPECT_EQ(data->describe(), "3 sequences of 3 from 11 tokens (" + folder.file("a.bin") + ")");
}

TEST(CausalData, TheLastSequenceNeedsItsLastLabel) {
  const DataFolder folder;
  const auto size = [&](size_t tokens) {
    const auto path = folder.write_tokens("a.bin", counting(0, tokens));
    return open_data({.paths = {path}, .sequence_length = 4}, nullptr)->size();
  };
  EXPECT_EQ(size(5), 1);
  EXPECT_EQ(size(8), 1);
  EXPECT_EQ(size(9), 2);
  EXPECT_EQ(error_of([&] { size(4); }, folder),
            "a.bin: 4 tokens, expected at least 5: one sequence of 4 and the token after it; give "
            "more data, or a shorter sequence length");
}

TEST(CausalData, FilesFollowEachOtherInTheOrderGiven) {
  const DataFolder folder;
  const auto first = folder.write_tokens("z.bin", counting(10, 2));
  const auto second = folder.write_tokens("a.u32.bin", std::vector<uint32_t>{70000});
  const auto third = folder.write_tokens("m.bin", counting(20, 4));
  const auto data = open_data({.paths = {first, second, third}, .sequence_length = 3}, nullptr);
  const TokenBatch batch = data->batch(Ids{0, 1}, 0, 0);
  EXPECT_EQ(batch.input_ids, (Ids{10, 11, 70000, 20, 21, 22}));
  EXPECT_EQ(batch.labels, (Ids{11, 70000, 20, 21, 22, 23}));
}

TEST(CausalData, FoldersAreReadByName) {
  const DataFolder folder;
  folder.write_tokens("b.bin", counting(20, 2));
  folder.write_tokens("a.bin", counting(10, 2));
  folder.write("a.bin.json", R"({"dtype": "uint16"})");
  folder.write("notes", "not data");
  folder.write(".hidden.bin", "x");
  const auto data = open_data({.paths = {folder.path() + "/"}, .sequence_length = 3}, nullptr);
  EXPECT_EQ(data->batch(Ids{0}, 0, 0).input_ids, (Ids{10, 11, 20}));
  EXPECT_EQ(data->batch(Ids{0}, 0, 0).labels, (Ids{11, 20, 21}));
}

TEST(CausalData, MaxSamplesTakesTheFirst) {
  const DataFolder folder;
  const auto path = folder.write_tokens("a.bin", counting(0, 100));
  EXPECT_EQ(open_data({.paths = {path}, .sequence_length = 4, .max_samples = 3}, nullptr)->size(),
            3);
  EXPECT_EQ(open_data({.paths = {path}, .sequence_length = 4, .max_samples = 99}, nullptr)->size(),
            24);
}

TEST(CausalData, TokensBeyondTheVocabularyAreNamedWhenTheyAreRead) {
  const DataFolder folder;
  const auto first = folder.write_tokens("a.bin", counting(0, 4));
  const auto second = folder.write_tokens("b.bin", std::vector<uint16_t>{1, 2, 3, 50, 4, 5});
  const auto data =
      open_data({.paths = {first, second}, .sequence_length = 3, .vocabulary = 50}, nullptr);
  EXPECT_EQ(data->batch(Ids{0, 1}, 0, 0).rows, 2);
  EXPECT_EQ(
      error_of([&] { data->batch(Ids{2}, 0, 0); }, folder),
      "b.bin: token 50 at byte 6 (token number 3) is beyond the vocabulary of 50; the file was "
      "made with another tokenizer, or its tokens are not uint16");
}

TEST(CausalData, AHeaderThatTellsTheLargestTokenIsCheckedAtOnce) {
  const DataFolder folder;
  TokenWriter writer(AtomicFile(folder.file("a.tokens")), TokenFormat::fullshard, 2);
  writer.append(std::vector<int32_t>(10'000, 3));
  writer.append(std::vector<int32_t>{50, 4});
  writer.finish();
  const DataOptions options{
      .paths = {folder.file("a.tokens")}, .sequence_length = 3, .vocabulary = 50};
  EXPECT_EQ(error_of([&] { open_data(options, nullptr); }, folder),
            "a.tokens: token 50 at byte 20064 (token number 10000) is beyond the vocabulary of 50; "
            "the file was made with another tokenizer, or its tokens are not uint16");
}

TEST(CausalData, TextIsPackedWithTheEndMarkAfterEachDocument) {
  const DataFolder folder;
  const auto first = folder.write("a.txt", "ab\n");
  const auto second =
      folder.write("b.jsonl", "{\"text\": \"c\"}\n\n{\"text\": \"\"}\n{\"text\": \"de\"}");
  const ToyTokenizer tokenizer;
  const auto data = open_data({.paths = {first, second}, .sequence_length = 8}, &tokenizer);
  EXPECT_EQ(data->size(), 1);
  const TokenBatch batch = data->batch(Ids{0}, 0, 0);
  EXPECT_EQ(batch.input_ids, (Ids{107, 108, 20, 1, 109, 1, 110, 111}));
  EXPECT_EQ(batch.labels, (Ids{108, 20, 1, 109, 1, 110, 111, 1}));
  EXPECT_EQ(data->max_token(), 111);
}

TEST(CausalData, SaysWhatCannotBeOpened) {
  const DataFolder folder;
  const ToyTokenizer tokenizer;
  const auto error = [&](DataOptions options, const Tokenizer* used) {
    return error_of([&] { open_data(options, used); }, folder);
  };
  const auto text = folder.write("a.txt", "hello");
  const auto tokens = folder.write("a.bin", "xy");
  EXPECT_EQ(error({}, nullptr), "data: no file or folder given");
  EXPECT_EQ(error({.paths = {text}}, nullptr),
            "a.txt: text needs a tokenizer; name one, or \"bytes\"");
  EXPECT_EQ(error({.paths = {text, tokens}}, &tokenizer),
            "a.txt is text, but a.bin is a token file; give either token files or text");
  EXPECT_EQ(error({.paths = {folder.write("b.pdf", "x")}}, &tokenizer),
            "b.pdf: unknown file ending; expected one of .bin, .tokens, .txt, .text, "
            ".md, .jsonl, .ndjson, .json, .tsv, .csv, texts also with .gz or .zst added");
  EXPECT_EQ(error({.paths = {folder.write("e.txt", "")}}, &tokenizer), "e.txt: is empty");
  EXPECT_EQ(error({.paths = {folder.write("p.tsv", "a\tb\n")}}, &tokenizer),
            "p.tsv: is a table of pairs without a column 'text', expected text or JSON");
  EXPECT_EQ(error({.paths = {text}, .vocabulary = 120}, &tokenizer),
            "a.txt:1: the tokenizer gives token 121, beyond the model's vocabulary of 120; use the "
            "model's own tokenizer");
  EXPECT_EQ(error({.paths = {folder.write("n.jsonl", "{\"text\": \"\"}\n")}}, &tokenizer),
            "n.jsonl: gives no tokens");
}

}  // namespace
}  // namespace fullshard::data
