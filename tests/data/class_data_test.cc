// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/class_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fullshard/data/join_rows.h"
#include "fullshard/data/open_data.h"
#include "tests/data/compressed_files.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::ToyTokenizer;
using Ids = std::vector<int64_t>;

const ToyTokenizer kClassTokenizer;

class Classes : public ::testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::string& name, const std::string& rows,
                                int64_t sequence_length = 16) {
    return open_data({.paths = {folder_.write(name, rows)},
                      .task = Task::classification,
                      .sequence_length = sequence_length,
                      .classes = {"no", "yes"},
                      .num_threads = 1},
                     &kClassTokenizer);
  }
  std::vector<std::string> found(const std::string& name, const std::string& rows) {
    return find_classes({folder_.write(name, rows)}, "text");
  }
  const DataFolder folder_;
};

TEST_F(Classes, TextsAndPairsBecomeRows) {
  const auto data = open("a.jsonl", R"({"text": "ab", "label": "yes"}
{"text": "a", "text_pair": "cd", "label": 0})");
  ASSERT_EQ(data->size(), 2);
  const TokenBatch batch = data->batch(Ids{0, 1}, 0, 0);
  EXPECT_EQ(batch.columns, 8);
  EXPECT_EQ(batch.input_ids, (Ids{3, 107, 108, 4, 0, 0, 0, 0,  //
                                  3, 107, 4, 109, 110, 4, 0, 0}));
  EXPECT_EQ(batch.attention_mask, (Ids{1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(batch.token_type_ids, (Ids{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(batch.labels, (Ids{1, 0}));
  EXPECT_TRUE(batch.labels_are_classes);
  EXPECT_EQ(batch.label_columns(), 1);
  EXPECT_EQ(batch.num_labels(), 2);
  EXPECT_EQ(batch.num_tokens(), 10);
  const auto table = open("a.tsv", "ab\tyes\na\tcd\tno\n");
  EXPECT_EQ(table->batch(Ids{0, 1}, 0, 0).input_ids, batch.input_ids);
  EXPECT_EQ(table->batch(Ids{0, 1}, 0, 0).labels, batch.labels);
}

TEST_F(Classes, OfPairsTheLongerTextIsCut) {
  const auto data = open("a.tsv", "abcdef\tuvw\tyes\nabcdefghijk\tno\n", 8);
  EXPECT_EQ(data->batch(Ids{0}, 0, 0).input_ids, (Ids{3, 107, 108, 109, 4, 127, 128, 4}));
  EXPECT_EQ(data->batch(Ids{1}, 0, 0).input_ids, (Ids{3, 107, 108, 109, 110, 111, 112, 4}));
  EXPECT_THAT(data->warnings(),
              ElementsAre(HasSubstr("2 of 2 rows are longer than 8 tokens and are cut")));
}

// Lengths as transformers 5.23 (tokenizers 0.23) keeps them with truncation="longest_first".
TEST_F(Classes, PairsAreCutAsTransformersDoes) {
  struct Lengths {
    size_t first, second, kept_first, kept_second;
  };
  const auto kept = [&](int64_t sequence_length, Lengths of) {
    const std::string row = std::string(of.first, 'a') + "\t" + std::string(of.second, 'b');
    const auto data = open("a.tsv", row + "\tyes\n", sequence_length);
    const Ids ids = data->batch(Ids{0}, 0, 0).input_ids;
    const auto num = [&](char letter) {
      return static_cast<size_t>(std::ranges::count(ids, 10 + letter));
    };
    EXPECT_EQ(num('a'), of.kept_first) << sequence_length << ": " << row;
    EXPECT_EQ(num('b'), of.kept_second) << sequence_length << ": " << row;
  };
  for (const Lengths& of : std::vector<Lengths>{{9, 9, 3, 4},
                                                {9, 8, 4, 3},
                                                {8, 9, 3, 4},
                                                {4, 4, 3, 4},
                                                {9, 1, 6, 1},
                                                {1, 9, 1, 6},
                                                {4, 3, 4, 3},
                                                {5, 3, 4, 3},
                                                {3, 5, 3, 4}}) {
    kept(10, of);  // room for 7
  }
  for (const Lengths& of :
       std::vector<Lengths>{{9, 9, 4, 4}, {9, 8, 4, 4}, {5, 4, 4, 4}, {9, 3, 5, 3}, {3, 9, 3, 5}}) {
    kept(11, of);  // room for 8
  }
}

TEST_F(Classes, LoseTheirBeginningsWhereTheTokenizerSaysSo) {
  const ToyTokenizer left({.cuts_left = true});
  const auto data =
      open_data({.paths = {folder_.write("a.tsv", "abcdef\tuvw\tyes\nabcdefghijk\tno\n")},
                 .task = Task::classification,
                 .sequence_length = 8,
                 .classes = {"no", "yes"},
                 .num_threads = 1},
                &left);
  EXPECT_EQ(data->batch(Ids{0}, 0, 0).input_ids, (Ids{3, 110, 111, 112, 4, 128, 129, 4}));
  EXPECT_EQ(data->batch(Ids{1}, 0, 0).input_ids, (Ids{3, 112, 113, 114, 115, 116, 117, 4}));
}

TEST_F(Classes, AreFoundInTheData) {
  EXPECT_THAT(found("a.tsv", "x\tgood\nx\tbad\nx\tgood\n"), ElementsAre("bad", "good"));
  EXPECT_THAT(found("a.jsonl", R"({"text": "x", "label": 2}
{"text": "x", "label": 0})"),
              ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
  EXPECT_THAT(found("a.jsonl", R"({"text": "x", "label": 2}
{"text": "x", "label": "b"})"),
              ElementsAre("2", "b"));
}

TEST_F(Classes, MayBeInTablesWithNames) {
  const auto expected = open("a.tsv", "ab\tyes\na\tcd\tno\n")->batch(Ids{0, 1}, 0, 0);
  for (const auto& [name, rows] :
       {std::pair("b.tsv", "text\tlabel\ttext_pair\nab\tyes\t\na\tno\tcd\n"),
        std::pair("b.csv", "label,id,text_pair,text\nyes,7,,ab\nno,8,\"cd\",a\n")}) {
    const auto data = open(name, rows);
    ASSERT_EQ(data->size(), 2) << name;  // the names are not a row
    const TokenBatch batch = data->batch(Ids{0, 1}, 0, 0);
    EXPECT_EQ(batch.input_ids, expected.input_ids) << name;
    EXPECT_EQ(batch.token_type_ids, expected.token_type_ids) << name;
    EXPECT_EQ(batch.labels, expected.labels) << name;
  }
  EXPECT_THAT(found("a.tsv", "text\tlabel\nx\t0\nx\t1\n"), ElementsAre("LABEL_0", "LABEL_1"));
  EXPECT_THAT(found("a.csv", "text,label\n\"x, y\",good\nx,bad\n"), ElementsAre("bad", "good"));
}

#if FULLSHARD_HAS_ZLIB

TEST_F(Classes, MayBeCompressed) {
  const std::string rows = "{\"text\": \"ab\", \"label\": \"yes\"}\n";
  const std::string table = "text,label\nab,yes\nb,no\n";
  EXPECT_EQ(open("a.jsonl.gz", testing::gzipped(rows))->batch(Ids{0}, 0, 0).input_ids,
            open("a.jsonl", rows)->batch(Ids{0}, 0, 0).input_ids);
  EXPECT_THAT(found("a.csv.gz", testing::gzipped(table)), ElementsAre("no", "yes"));
  EXPECT_EQ(open("a.csv.gz", testing::gzipped(table))->size(), 2);
  EXPECT_EQ(error_of([&] { open("a.csv.gz", "text"); }, folder_),
            "a.csv.gz: is not a gzip file, although its name says so");
}

#endif

TEST_F(Classes, RowsThatAreWrongAreNamed) {
  const auto said = [&](const std::string& name, const std::string& rows) {
    return error_of([&] { open(name, rows); }, folder_);
  };
  EXPECT_EQ(said("a.tsv", "x\tyes\nx\tperhaps\n"),
            "a.tsv:2: has the label 'perhaps', but the model's classes are no, yes");
  EXPECT_EQ(said("a.tsv", "x\t2\n"),
            "a.tsv:1: has the label '2', but the model's classes are no, yes");
  EXPECT_EQ(said("a.tsv", "x\n"),
            "a.tsv:1: has 1 column, expected a text, perhaps a second one, and a label");
  EXPECT_EQ(said("a.tsv", "x\t-1\n"),
            "a.tsv:1: has the label -1, expected a number from 0 to 99999");
  EXPECT_EQ(said("a.jsonl", R"({"text": "x"})"),
            "a.jsonl:1: has no field 'label'; its fields: text");
  EXPECT_EQ(said("a.tsv", "sentence\tlabel\nx\tyes\n"),
            "a.tsv: has no column 'text'; its first line says sentence, label");
  EXPECT_EQ(said("a.csv", "text,label\nx,yes\nx,perhaps\n"),
            "a.csv:3: has the label 'perhaps', but the model's classes are no, yes");
  EXPECT_EQ(said("a.txt", "x"),
            "a.txt: is text, expected texts with labels: a table (.tsv, .csv) or JSON");
  EXPECT_EQ(error_of([&] { found("a.tsv", "x\tyes\n"); }, folder_),
            "a.tsv: 1 different label, expected at least two classes");
}

TEST_F(Classes, RowsCanBeJoined) {
  const auto data = open("a.tsv", "a\tyes\nabcdefghijk\tno\n", 24);
  const TokenBatch joined =
      join_rows({data->batch(Ids{0}, 0, 0), data->batch(Ids{1}, 0, 0)}, {{1}, {0}});
  EXPECT_EQ(joined.columns, 16);
  EXPECT_EQ(joined.most_columns, 24);
  EXPECT_EQ(joined.labels, (Ids{0, 1}));
  EXPECT_EQ(joined.num_tokens(), 16);
}

}  // namespace
}  // namespace fullshard::data
