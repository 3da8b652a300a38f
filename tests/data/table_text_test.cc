// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/table_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/data/text/text_cache.h"
#include "fullshard/data/translation_data.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::ToyTokenizer;

TEST(TableText, ReadsQuotedFields) {
  const auto row = read_table_row("a,\"b, \"\"c\"\"\r\nd\",,e \"f\"\r\nnext", ',');
  ASSERT_TRUE(row);
  EXPECT_THAT(row->fields, ElementsAre("a", "b, \"c\"\r\nd", "", "e \"f\""));
  EXPECT_EQ(row->bytes, 24u);
  EXPECT_EQ(row->lines, 2);
  EXPECT_FALSE(read_table_row("a,\"b", ','));
  EXPECT_FALSE(read_table_row("\"a\"b,c", ','));
  EXPECT_THAT(read_table_row("a", ',')->fields, ElementsAre("a"));
  EXPECT_THAT(read_table_row("a,", ',')->fields, ElementsAre("a", ""));
  EXPECT_EQ(end_of_last_row("a,b\n\"c\nd\",e\n\"f\ng", ','), 12u);
  EXPECT_EQ(end_of_last_row("\"f\ng", ','), 0u);
}

std::string text_of_tokens(const TokeniseOptions& options) {
  const TokenFile file = tokenised_text(options, ToyTokenizer(), "");
  std::vector<int64_t> tokens(static_cast<size_t>(file.size()));
  file.read(0, tokens);
  std::string text;
  for (const int64_t token : tokens) text += token == 1 ? '|' : static_cast<char>(token - 10);
  return text;
}

TEST(TableText, HoldsTextsByTheNameOfAColumn) {
  const DataFolder folder;
  const auto csv = folder.write("a.csv", "id,text\n1,\"one, two\"\n\n2,three\n");
  const auto tsv = folder.write("b.tsv", "\xef\xbb\xbftext\tid\n\"a\tb\"\t1\nc\t2\n");
  for (const int64_t bytes : {1, 1000}) {
    EXPECT_EQ(text_of_tokens({.files = {csv, tsv}, .separator = 1, .block_bytes = bytes}),
              "one, two|three|a\tb|c|");
  }
  EXPECT_EQ(text_of_tokens({.files = {csv}, .field = "id", .separator = 1}), "1|2|");
}

TEST(TableText, ErrorsNameLineAndColumns) {
  const DataFolder folder;
  const auto error = [&](const std::string& name, const std::string& text) {
    folder.write(name, text);
    return error_of([&] { text_of_tokens({.files = {folder.file(name)}}); }, folder);
  };
  EXPECT_EQ(error("a.csv", "id,body\n1,x\n"),
            "a.csv: has no column 'text'; its first line says id, body");
  EXPECT_EQ(error("a.csv", "id,text\n1,\"a\nb\"\n2\n"),
            "a.csv:4: has 1 fields, but there are 2 columns: id, text");
  EXPECT_EQ(error("a.csv", "id,text\n1,x\n2,\"y\n"),
            "a.csv:3: a quote is not closed, or followed by more than a separator");
  EXPECT_EQ(error("a.csv", "text\n"), "a.csv: gives no tokens");
  EXPECT_EQ(error("a.tsv", "a\tb\n"),
            "a.tsv: is a table of pairs without a column 'text', expected text or JSON");
}

TEST(TableText, HoldsPairsByTheNamesOfColumnsOrLanguages) {
  const DataFolder folder;
  const auto pairs = [&](const std::string& name, const std::string& text) {
    const TranslationOptions options{.files = {folder.write(name, text)},
                                     .languages = {"en", "ro"},
                                     .source_length = 64,
                                     .target_length = 64};
    const TranslationData data(options, ToyTokenizer());
    std::string all;
    for (int64_t i = 0; i < data.size(); ++i) {
      const TokenBatch batch = data.batch(std::vector<int64_t>{i}, 0, 0);
      for (const int64_t id : batch.input_ids) all += id >= 10 ? static_cast<char>(id - 10) : '.';
      all += '>';
      for (const int64_t id : batch.labels) all += id >= 10 ? static_cast<char>(id - 10) : '.';
      all += ' ';
    }
    return all;
  };
  EXPECT_THAT(pairs("a.tsv", "good\tbun\n"), ::testing::MatchesRegex("good\\.+>bun\\.+ "));
  EXPECT_EQ(pairs("a.csv", "ro,id,en\nbun,1,good\nzi,2,day\n"),
            pairs("a.tsv", "good\tbun\nday\tzi\n"));
  EXPECT_EQ(pairs("b.csv", "tgt,src\nbun,good\nzi,day\n"), pairs("a.tsv", "good\tbun\nday\tzi\n"));
  EXPECT_EQ(pairs("b.tsv", "source\ttarget\ngood\tbun\nday\tzi\n"),
            pairs("a.tsv", "good\tbun\nday\tzi\n"));
  EXPECT_THAT(error_of([&] { pairs("c.csv", "a,b\n1,2\n"); }, folder),
              HasSubstr("c.csv: has no pairs; expected the columns src and tgt"));
  EXPECT_THAT(error_of([&] { pairs("c.csv", "en,b\n1,2\n"); }, folder),
              HasSubstr("c.csv: has no column 'ro'; its first line says en, b"));
}

TEST(OtherFormats, AreRefusedWithTheCommandThatConvertsThem) {
  const DataFolder folder;
  const auto path = folder.write("train.parquet", "PAR1");
  EXPECT_EQ(
      error_of([&] { kind_of(path); }, folder),
      "train.parquet: .parquet is not supported; convert it to JSON: python3 -c \"import pandas, "
      "sys; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], orient='records', "
      "lines=True)\" train.parquet train.jsonl");
  EXPECT_THAT(error_of([&] { list_files({folder.path()}); }, folder),
              HasSubstr(".to_json(sys.argv[2], orient='records', lines=True)\" "));
}

}  // namespace
}  // namespace fullshard::data
