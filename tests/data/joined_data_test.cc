// SPDX-License-Identifier: Apache-2.0
// Data sets that are mixed, joined and split.
#include "fullshard/data/joined_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "fullshard/data/join_rows.h"
#include "fullshard/data/open_data.h"
#include "fullshard/data/split_data.h"
#include "fullshard/data/text/data_file_kind.h"
#include "fullshard/data/weighted_paths.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::ToyTokenizer;
using Ids = std::vector<int64_t>;

const ToyTokenizer kByteTokenizer;

// Example k is the row (base + k).
class CountedData final : public Dataset {
 public:
  CountedData(int64_t size, int64_t base) : size_(size), base_(base) {}
  int64_t size() const override { return size_; }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t, int64_t) const override {
    TokenBatch batch{.rows = std::ssize(examples), .columns = 1};
    for (const int64_t example : examples) batch.input_ids.push_back(base_ + example);
    batch.labels = batch.input_ids;
    return batch;
  }
  int64_t max_token() const override { return base_ + size_; }
  std::string describe() const override { return "counted"; }

 private:
  int64_t size_, base_;
};

MixedData mixed(int64_t first, int64_t second, double weight, uint64_t seed) {
  std::vector<WeightedData> parts;
  parts.push_back({std::make_unique<CountedData>(first, 0), weight});
  parts.push_back({std::make_unique<CountedData>(second, 10000), 1 - weight});
  return {std::move(parts), seed};
}

Ids whole_epoch(const Dataset& data, int64_t epoch = 0) {
  Ids numbers(static_cast<size_t>(data.size()));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return data.batch(numbers, 0, epoch).input_ids;
}

TEST(MixedData, DrawsByTheWeights) {
  const MixedData data = mixed(2000, 2000, 0.7, 1);
  EXPECT_EQ(data.size(), 4000);
  const Ids drawn = whole_epoch(data);
  const auto num_first = std::ranges::count_if(drawn, [](int64_t id) { return id < 10000; });
  EXPECT_NEAR(static_cast<double>(num_first) / 4000, 0.7, 0.03);
}

TEST(MixedData, IsAFunctionOfSeedEpochAndPlace) {
  const MixedData data = mixed(300, 1700, 0.5, 7);
  const Ids drawn = whole_epoch(data, 3);
  EXPECT_EQ(drawn, whole_epoch(mixed(300, 1700, 0.5, 7), 3));
  EXPECT_NE(drawn, whole_epoch(mixed(300, 1700, 0.5, 8), 3));
  EXPECT_NE(drawn, whole_epoch(data, 4));
  // As any rank would request them, one by one and in another order.
  for (const int64_t place : {1999, 0, 1023, 1024, 1025}) {
    EXPECT_EQ(data.batch(Ids{place}, 0, 3).input_ids, Ids{drawn[static_cast<size_t>(place)]});
  }
}

TEST(MixedData, AnyEpochThatACheckpointNamesHasItsExamples) {
  const MixedData data = mixed(300, 1700, 0.5, 7);
  for (const int64_t epoch : {int64_t{1} << 53, INT64_MAX}) {
    for (const int64_t place : {int64_t{0}, data.size() - 1}) {
      const int64_t id = data.batch(Ids{place}, 7, epoch).input_ids.at(0);
      EXPECT_TRUE((id >= 0 && id < 300) || (id >= 10000 && id < 11700)) << epoch << ": " << id;
    }
  }
}

// A part that is small for its weight is repeated, none of its examples more than once more than
// another; a large part continues in the next epoch with the examples that have not come.
TEST(MixedData, RepeatsNothingBeforeAPartIsThrough) {
  const MixedData data = mixed(100, 900, 0.5, 3);
  std::map<int64_t, int> times;
  std::set<int64_t> large;
  int64_t num_large = 0;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (const int64_t id : whole_epoch(data, epoch)) {
      if (id < 10000) {
        ++times[id];
      } else {
        ++num_large;
        large.insert(id);
      }
    }
  }
  ASSERT_EQ(times.size(), 100U);
  const auto [least, most] =
      std::ranges::minmax_element(times, {}, [](const auto& entry) { return entry.second; });
  EXPECT_LE(most->second - least->second, 1);
  EXPECT_EQ(std::ssize(large), std::min<int64_t>(num_large, 900));
}

TEST(MixedData, SaysWhatItsOrderDependsOn) {
  EXPECT_THAT(mixed(300, 1700, 0.25, 7).mixture(),
              MatchesRegex("0.25 of 300 \\([0-9a-f]{8}\\), 0.75 of 1700 \\([0-9a-f]{8}\\)"));
  EXPECT_EQ(CountedData(3, 0).mixture(), "");
}

// Data sets of the same size and weight are still different.
TEST(MixedData, KnowsItsPartsByTheirTokens) {
  const auto mixture = [](int64_t first, int64_t second) {
    std::vector<WeightedData> parts;
    parts.push_back({std::make_unique<CountedData>(50, first), 1});
    parts.push_back({std::make_unique<CountedData>(50, second), 1});
    return MixedData(std::move(parts), 3).mixture();
  };
  EXPECT_EQ(mixture(0, 10000), mixture(0, 10000));
  EXPECT_NE(mixture(0, 10000), mixture(10000, 0));
}

TEST(MixedData, WarnsWhereItsFilesShouldComeInOrder) {
  const auto warnings = [](Order asked) {
    std::vector<WeightedData> parts;
    parts.push_back({std::make_unique<CountedData>(3, 0), 1});
    return MixedData(std::move(parts), 7, asked).warnings();
  };
  EXPECT_THAT(warnings(Order::shuffled), ElementsAre());
  EXPECT_THAT(warnings(Order::sequential),
              ElementsAre("--order: is sequential, but --data mixes data sets by weights: their "
                          "examples are drawn by the seed; give --data without weights for the "
                          "order of the files"));
}

TEST(JoinRows, PadsTheShorterOnes) {
  TokenBatch narrow{.rows = 1, .columns = 2, .input_ids = {1, 2}, .labels = {2, 3}};
  TokenBatch wide{
      .rows = 2, .columns = 3, .input_ids = {4, 5, 6, 7, 8, 9}, .labels = {5, 6, 7, 8, 9, -100}};
  narrow.labels_are_next = wide.labels_are_next = true;
  wide.num_padding = 1;
  TokenBatch joined = join_rows({narrow, wide}, {{1}, {2, 0}});
  EXPECT_EQ(joined.input_ids, (Ids{7, 8, 9, 1, 2, 0, 4, 5, 6}));
  EXPECT_EQ(joined.labels, (Ids{8, 9, -100, 2, 3, -100, 5, 6, 7}));
  EXPECT_EQ(joined.num_tokens(), 7);
  EXPECT_TRUE(joined.document_lengths.empty());
  wide.document_lengths = {{1, 2}, {3}};
  joined = join_rows({narrow, wide}, {{1}, {2, 0}});
  EXPECT_THAT(joined.document_lengths,
              ElementsAre(ElementsAre(3), ElementsAre(2, 1), ElementsAre(1, 2)));
  narrow.attention_mask = {1, 0};
  joined = join_rows({narrow, wide}, {{1}, {2, 0}});
  EXPECT_EQ(joined.attention_mask, (Ids{1, 1, 1, 1, 0, 0, 1, 1, 1}));
}

TEST(JoinedData, FollowsOneAfterTheOther) {
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(std::make_unique<CountedData>(2, 0));
  parts.push_back(std::make_unique<CountedData>(3, 10));
  const JoinedData data(std::move(parts));
  EXPECT_EQ(whole_epoch(data), (Ids{0, 1, 10, 11, 12}));
  EXPECT_EQ(data.batch(Ids{4, 0, 2}, 0, 0).input_ids, (Ids{12, 0, 10}));
}

TEST(SplitData, EveryExampleIsInOnePart) {
  for (const int64_t size : {2, 3, 20, 1001}) {
    const SplitData split = split_data(std::make_unique<CountedData>(size, 0), 0.05, 42);
    Ids rest = whole_epoch(*split.rest);
    const Ids held_out = whole_epoch(*split.held_out);
    EXPECT_EQ(std::ssize(held_out), std::max<int64_t>(1, (size + 10) / 20));
    EXPECT_TRUE(std::ranges::is_sorted(rest));
    EXPECT_TRUE(std::ranges::is_sorted(held_out));
    rest.insert(rest.end(), held_out.begin(), held_out.end());
    std::ranges::sort(rest);
    EXPECT_EQ(rest, whole_epoch(CountedData(size, 0)));
  }
}

TEST(SplitData, DependsOnTheSeed) {
  const auto held_out = [](uint64_t seed) {
    return whole_epoch(*split_data(std::make_unique<CountedData>(1000, 0), 0.1, seed).held_out);
  };
  EXPECT_EQ(held_out(1), held_out(1));
  EXPECT_NE(held_out(1), held_out(2));
}

TEST(SplitData, LeavesSomethingToTrainOn) {
  const DataFolder folder;
  EXPECT_EQ(error_of([] { split_data(std::make_unique<CountedData>(1, 0), 0.5, 1); }, folder),
            "counted: 1 of its 1 examples would be held out, which leaves none");
}

TEST(WeightedPaths, AreToldByTheirEnd) {
  const DataFolder folder;
  const std::string odd = folder.write("a:0.5", "x");
  EXPECT_TRUE(weighted_paths({"a.jsonl", "b.jsonl"}).empty());
  EXPECT_TRUE(weighted_paths({odd}).empty());  // a file of that name
  const auto found = weighted_paths({"a.jsonl:0.7", odd + ":3"});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].path, "a.jsonl");
  EXPECT_EQ(found[0].weight, 0.7);
  EXPECT_EQ(found[1].path, odd);
  EXPECT_EQ(found[1].weight, 3);
  const auto said = [&](const std::vector<std::string>& words) {
    return error_of([&] { weighted_paths(words); }, folder, ErrorKind::usage);
  };
  EXPECT_EQ(said({"a:0.5", "b"}),
            "--data: a has a weight and b has none; give each its weight, as PATH:0.5, or none");
  EXPECT_EQ(said({"a:0"}), "--data: the weight of a:0 is 0, expected more than 0");
  EXPECT_THAT(said({"a:inf"}), HasSubstr("is inf, expected more than 0"));
}

TEST(WeightedPaths, DivideSamples) {
  const std::vector<WeightedPath> two = {{"a", 0.9}, {"b", 0.1}};
  EXPECT_THAT(samples_of(two, 0), ElementsAre(0, 0));
  EXPECT_THAT(samples_of(two, 2), ElementsAre(1, 1));
  EXPECT_THAT(samples_of(two, 3), ElementsAre(2, 1));
  EXPECT_THAT(samples_of(two, 1000), ElementsAre(900, 100));
  EXPECT_THAT(samples_of({{"a", 1}, {"b", 1}, {"c", 1}}, 8), ElementsAre(3, 2, 3));
  const DataFolder folder;
  EXPECT_EQ(error_of([&] { samples_of(two, 1); }, folder, ErrorKind::usage),
            "--max-samples: is 1, but --data mixes 2 data sets; give at least one example of each");
}

TEST(WeightedPaths, AreRefusedWhereNothingIsMixed) {
  const DataFolder folder;
  const std::string path = folder.write("b.txt", "text");
  EXPECT_EQ(error_of([&] { list_files({path + ":0.5"}, "validation"); }, folder),
            "b.txt:0.5: has a weight, but only --data mixes data sets, and --eval-data takes no "
            "weights; give b.txt");
  EXPECT_EQ(error_of([&] { list_files({path + "x:0.5"}); }, folder),
            "b.txtx:0.5: cannot be read (No such file or directory)");
}

TEST(OpenMixedData, TakesSoManySamplesOfAllTogether) {
  const DataFolder folder;
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  DataOptions options{
      .paths = {folder.write("a.jsonl", rows) + ":1", folder.write("b.jsonl", rows) + ":1"},
      .sequence_length = 16,
      .max_samples = 8,
      .num_threads = 1};
  EXPECT_EQ(open_mixed_data(options, &kByteTokenizer, 0, 5).train->size(), 8);
  EXPECT_THAT(open_mixed_data(options, &kByteTokenizer, 0, 5).train->mixture(),
              MatchesRegex("0.5 of 4 \\([0-9a-f]{8}\\), 0.5 of 4 \\([0-9a-f]{8}\\)"));
  options.max_samples = 3;
  EXPECT_EQ(open_mixed_data(options, &kByteTokenizer, 0, 5).train->size(), 3);
  options.max_samples = 0;
  EXPECT_EQ(open_mixed_data(options, &kByteTokenizer, 0, 5).train->size(), 80);
}

TEST(OpenMixedData, SplitsEachAndMixesTheRest) {
  const DataFolder folder;
  std::string first, second;
  for (int i = 0; i < 40; ++i) {
    first += "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
    second += "{\"prompt\": \"a\", \"completion\": \"cdefghijk\"}\n";
  }
  const DataOptions options{
      .paths = {folder.write("a.jsonl", first) + ":3", folder.write("b.jsonl", second) + ":1"},
      .sequence_length = 16,
      .num_threads = 1};
  const OpenedData opened = open_mixed_data(options, &kByteTokenizer, 0.1, 5);
  EXPECT_EQ(opened.train->size(), 72);
  ASSERT_TRUE(opened.held_out);
  EXPECT_EQ(opened.held_out->size(), 8);
  EXPECT_EQ(opened.held_out->batch(Ids{0, 7}, 0, 0).columns, 16);
  EXPECT_FALSE(open_mixed_data(options, &kByteTokenizer, 0, 5).held_out);
}

}  // namespace
}  // namespace fullshard::data
