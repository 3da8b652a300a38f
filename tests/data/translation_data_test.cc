// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/translation_data.h"

#include <gtest/gtest.h>

#include "fullshard/data/open_data.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using testing::error_of;
using testing::ToyTokenizer;
using Ids = std::vector<int64_t>;

const ToyTokenizer kTokenizer;

DataOptions pairs(const std::string& path) {
  return {.paths = {path}, .task = Task::translation, .sequence_length = 32};
}

TEST(TranslationData, PadsToTheLongestInMultiplesOfEight) {
  const DataFolder folder;
  const auto data =
      open_data(pairs(folder.write("a.tsv", "ab\tx\n\nabcdefgh\tyz\r\n")), &kTokenizer);
  EXPECT_EQ(data->size(), 2);
  const TokenBatch one = data->batch(Ids{0}, 0, 0);
  EXPECT_EQ(one.columns, 8);
  EXPECT_EQ(one.decoder_columns, 8);
  EXPECT_EQ(one.input_ids, (Ids{107, 108, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(one.attention_mask, (Ids{1, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(one.labels, (Ids{130, 1, -100, -100, -100, -100, -100, -100}));
  EXPECT_FALSE(one.labels_are_next);
  EXPECT_EQ(one.num_labels(), 2);
  EXPECT_EQ(one.num_tokens(), 5);
  const TokenBatch both = data->batch(Ids{1, 0}, 0, 0);
  EXPECT_EQ(both.columns, 16);
  EXPECT_EQ(both.decoder_columns, 8);
  EXPECT_EQ(both.input_ids, (Ids{107, 108, 109, 110, 111, 112, 113, 114, 1, 0, 0, 0, 0, 0, 0, 0,  //
                                 107, 108, 1,   0,   0,   0,   0,   0,   0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(both.labels, (Ids{131, 132, 1, -100, -100, -100, -100, -100,  //
                              130, 1, -100, -100, -100, -100, -100, -100}));
  EXPECT_EQ(data->max_token(), 132);
}

TEST(TranslationData, CutsToTheLengthsAndKeepsTheEndMark) {
  const DataFolder folder;
  DataOptions options = pairs(folder.write("a.tsv", "abcdefghijklmnop\tuvwxyz\n"));
  options.sequence_length = 10;
  options.target_length = 4;
  options.source_prefix = "t: ";
  const TokenBatch batch = open_data(options, &kTokenizer)->batch(Ids{0}, 0, 0);
  EXPECT_EQ(batch.columns, 10);  // not rounded up beyond what the model was promised
  EXPECT_EQ(batch.most_columns, 10);
  EXPECT_EQ(batch.most_decoder_columns, 4);
  EXPECT_EQ(batch.input_ids, (Ids{126, 68, 42, 107, 108, 109, 110, 111, 112, 1}));
  EXPECT_EQ(batch.labels, (Ids{127, 128, 129, 1}));
}

TEST(TranslationData, CutsTheBeginningWhereTheTokenizerSaysSo) {
  const DataFolder folder;
  const ToyTokenizer left({.cuts_left = true});
  DataOptions options = pairs(folder.write("a.tsv", "abcdefghijklmnop\tuvwxyz\n"));
  options.sequence_length = 8;
  options.target_length = 4;
  const TokenBatch batch = open_data(options, &left)->batch(Ids{0}, 0, 0);
  EXPECT_EQ(batch.input_ids, (Ids{116, 117, 118, 119, 120, 121, 122, 1}));
  EXPECT_EQ(batch.labels, (Ids{130, 131, 132, 1}));
}

TEST(TranslationData, RefusesWhatIsNotTextWithItsPlace) {
  const DataFolder folder;
  const DataOptions options = pairs(folder.write("a.tsv", "one\tun\nend\tfin \xe0 lui\n"));
  EXPECT_EQ(
      error_of([&] { open_data(options, &kTokenizer); }, folder),
      "a.tsv: byte 15 is 0xe0, which is not UTF-8; text is read as UTF-8: convert the file, or "
      "give token files");
}

TEST(TranslationData, EveryShapeOfPairsReadsTheSame) {
  const DataFolder folder;
  const Ids sources = {107, 1, 0, 0, 0, 0, 0, 0};
  const auto check = [&](const std::string& name, const std::string& text) {
    DataOptions options = pairs(folder.write(name, text));
    options.source_language = "en";
    options.target_language = "ro";
    const auto data = open_data(options, &kTokenizer);
    EXPECT_EQ(data->size(), 1) << text;
    EXPECT_EQ(data->batch(Ids{0}, 0, 0).input_ids, sources) << text;
    EXPECT_EQ(data->batch(Ids{0}, 0, 0).labels[0], 108) << text;
  };
  check("a.tsv", "a\tb");
  check("a.jsonl", R"({"src": "a", "tgt": "b"})");
  check("b.jsonl", R"({"target": "b", "source": "a", "id": 3})");
  check("c.jsonl", R"({"translation": {"ro": "b", "de": "x", "en": "a"}})");
  check("d.json", R"([{"translation": {"en": "a", "ro": "b"}}])");
}

TEST(TranslationData, MaxSamplesTakesTheFirstPairs) {
  const DataFolder folder;
  std::string table;
  for (int i = 0; i < 100; ++i) table += std::to_string(i) + "\tx\n";
  for (const int threads : {1, 3}) {
    TranslationOptions options{
        .files = {folder.write("a.tsv", table)}, .num_threads = threads, .block_bytes = 20};
    options.max_samples = 11;
    const TranslationData data(options, kTokenizer);
    EXPECT_EQ(data.size(), 11);
    EXPECT_EQ(data.batch(Ids{10}, 0, 0).input_ids[1], 10 + '0');
    options.max_samples = 0;
    EXPECT_EQ(TranslationData(options, kTokenizer).size(), 100);
  }
}

TEST(TranslationData, ErrorsNameFileAndLine) {
  const DataFolder folder;
  const auto error = [&](const std::string& name, const std::string& text, int64_t vocabulary = 0) {
    DataOptions options = pairs(folder.write(name, text));
    options.vocabulary = vocabulary;
    return error_of([&] { open_data(options, &kTokenizer); }, folder);
  };
  EXPECT_EQ(error("a.tsv", "a\tb\nc\n"),
            "a.tsv:2: has 1 column, expected a source, a tab and a target");
  EXPECT_EQ(error("a.tsv", "a\tb\tc\n"),
            "a.tsv:1: has 3 columns, expected a source, a tab and a target");
  EXPECT_EQ(error("a.tsv", "\n\n"), "a.tsv: holds no pairs");
  EXPECT_EQ(error("a.txt", "a"), "a.txt: is text, expected pairs: a table (.tsv, .csv) or JSON");
  EXPECT_EQ(error("a.jsonl", R"({"text": "a"})"),
            "a.jsonl:1: is not a pair; expected the fields src and tgt, source and target, or "
            "translation; its fields: text");
  EXPECT_EQ(error("a.jsonl", R"({"src": "a"})"), "a.jsonl:1: has no field 'tgt'; its fields: src");
  EXPECT_EQ(
      error("a.jsonl", R"({"translation": {"en": "a", "ro": "b"}})"),
      "a.jsonl:1: has a text for each of the languages en, ro; name the source and the target "
      "language");
  EXPECT_EQ(error("a.jsonl", R"({"translation": "a"})"),
            "a.jsonl:1: field 'translation' is string, expected an object of languages");
  EXPECT_EQ(error("a.tsv", "a\tb\nc\tz\n", 130),
            "a.tsv:2: the tokenizer gives token 132, beyond the model's vocabulary of 130; use the "
            "model's own tokenizer");
}

}  // namespace
}  // namespace fullshard::data
