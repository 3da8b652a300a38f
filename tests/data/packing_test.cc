// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/documents/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "fullshard/data/random.h"
#include "tests/errors.h"

namespace fullshard::data {
namespace {

using Sequences = std::vector<std::vector<int64_t>>;

TEST(Packing, FillsWithTheBestFit) {
  // 6 and 4 fill a sequence, 5 and 3 leave 2, which the 2 takes.
  EXPECT_EQ(pack_documents(std::vector<int64_t>{2, 5, 4, 6, 3}, 10),
            (Sequences{{0, 1, 4}, {2, 3}}));
  EXPECT_EQ(pack_documents(std::vector<int64_t>{}, 10), Sequences());
  EXPECT_EQ(pack_documents(std::vector<int64_t>{10, 10}, 10), (Sequences{{0}, {1}}));
}

TEST(Packing, LosesNoDocumentAndOverfillsNoSequence) {
  CounterRandom random(1, 2, 3);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 5000; ++i) lengths.push_back(1 + static_cast<int64_t>(random.below(300)));
  const Sequences sequences = pack_documents(lengths, 512);
  std::vector<int64_t> seen;
  for (const auto& documents : sequences) {
    int64_t total = 0;
    for (const int64_t document : documents) total += lengths[static_cast<size_t>(document)];
    EXPECT_LE(total, 512);
    EXPECT_TRUE(std::ranges::is_sorted(documents));
    seen.insert(seen.end(), documents.begin(), documents.end());
  }
  std::ranges::sort(seen);
  std::vector<int64_t> all(lengths.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  EXPECT_EQ(seen, all);
  const auto total = std::reduce(lengths.begin(), lengths.end());
  EXPECT_LE(std::ssize(sequences), total / 512 + 1 + total / 512 / 100);  // full but for 1 %
}

TEST(Packing, RefusesWhatFitsNowhere) {
  EXPECT_EQ(testing::message_of([] { pack_documents(std::vector<int64_t>{11}, 10); }),
            "packing: a document of 11 in sequences of 10");
}

}  // namespace
}  // namespace fullshard::data
