// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/inspect.h"

#include <gtest/gtest.h>

#include "fullshard/data/tokens/token_writer.h"
#include "tests/data/data_files.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using testing::error_of;

TEST(Inspect, CountsEveryToken) {
  const DataFolder folder;
  const TokenFile file(
      folder.write_tokens("a.u32.bin", std::vector<uint32_t>{7, 9, 7, 4000000000, 9, 7, 2}));
  const TokenSummary summary = inspect(file, 0, 3);
  EXPECT_EQ(summary.layout.num_tokens, 7);
  EXPECT_EQ(summary.layout.num_documents, kUnknown);
  EXPECT_EQ(summary.min_token, 2);
  EXPECT_EQ(summary.max_token, 4000000000);
  EXPECT_EQ(summary.num_distinct, 4);
  ASSERT_EQ(summary.most_frequent.size(), 3u);
  EXPECT_EQ(summary.most_frequent[0].token, 7);
  EXPECT_EQ(summary.most_frequent[0].count, 3);
  EXPECT_EQ(summary.most_frequent[1].token, 9);
  EXPECT_EQ(summary.most_frequent[2].token, 2);  // as frequent as the last, but smaller
}

TEST(Inspect, FindsTheFirstTokenBeyondTheVocabulary) {
  const DataFolder folder;
  const TokenFile file(folder.write_tokens("a.bin", std::vector<uint16_t>{1, 5, 9, 7}));
  EXPECT_EQ(inspect(file, 10, 0).max_token, 9);
  EXPECT_EQ(error_of([&] { inspect(file, 7, 0); }, folder),
            "a.bin: token 9 at byte 4 (token number 2) is beyond the vocabulary of 7");
}

TEST(Inspect, DoubtsTheHeader) {
  const DataFolder folder;
  TokenWriter writer(AtomicFile(folder.file("a.tokens")), TokenFormat::fullshard, 2);
  writer.begin_document();
  writer.append(std::vector<int32_t>{1, 2, 3, 4});
  writer.begin_document();
  writer.append(std::vector<int32_t>{5});
  writer.finish();
  const std::string good = testing::read_file(folder.file("a.tokens"));
  EXPECT_EQ(inspect(TokenFile(folder.file("a.tokens")), 0, 0).layout.num_documents, 2);
  std::string bad = good;
  bad[64 + 2 * 4] = 9;
  EXPECT_EQ(error_of([&] { inspect(TokenFile(folder.write("a.tokens", bad)), 0, 0); }, folder),
            "a.tokens: its header says that the largest token is 5, but it is 9");
  bad = good;
  bad[bad.size() - 8] = 99;
  EXPECT_EQ(error_of([&] { inspect(TokenFile(folder.write("a.tokens", bad)), 0, 0); }, folder),
            "a.tokens: a document begins at token 99, after one at 0, of 5 tokens");
}

}  // namespace
}  // namespace fullshard::data
