// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include "fullshard/base/crc32c.h"
#include "fullshard/base/error.h"
#include "fullshard/stored/blocks/block_reader.h"
#include "fullshard/stored/blocks/block_writer.h"
#include "fullshard/stored/blocks/buffer_pool.h"
#include "fullshard/stored/blocks/work_items.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

TEST(Crc32c, IsTheStandardOne) {
  EXPECT_EQ(base::crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(base::crc32c_by_tables("123456789", 9), 0xe3069283u);
  EXPECT_EQ(base::crc32c("", 0), 0u);
  EXPECT_EQ(base::crc32c("6789", 4, base::crc32c("12345", 5)), 0xe3069283u);
}

TEST(Crc32c, InstructionAndTablesAgreeAtEveryLengthAndAlignment) {
  std::string bytes(300, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37 + 11);
  for (int64_t begin = 0; begin < 9; ++begin) {
    for (int64_t length = 0; length < 280; ++length) {
      ASSERT_EQ(base::crc32c(bytes.data() + begin, length),
                base::crc32c_by_tables(bytes.data() + begin, length));
    }
  }
}

TEST(Crc32c, OfLongStretchesIsThatOfTheirBytes) {
  std::string bytes(100'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37 + i / 97);
  for (const int64_t length : {12'287, 12'288, 12'289, 24'576, 50'003, 99'000}) {
    EXPECT_EQ(base::crc32c(bytes.data() + 3, length, 7),
              base::crc32c_by_tables(bytes.data() + 3, length, 7));
  }
}

TEST(WorkItems, AreAllDoneOnceAndTheFirstErrorEndsThem) {
  std::vector<std::atomic<int>> counts(100);
  EXPECT_TRUE(stored::do_items(100, 3, [&](int, int64_t i) { ++counts[static_cast<size_t>(i)]; }));
  for (const auto& count : counts) EXPECT_EQ(count, 1);
  EXPECT_THROW(stored::do_items(100, 3, [](int, int64_t i) { check(i != 5, "five"); }), Error);
  std::atomic<bool> stop{true};
  EXPECT_FALSE(stored::do_items(
      100, 3, [](int, int64_t) { ADD_FAILURE(); }, &stop));
}

// 10 MiB and a bit: several calls, several blocks, spans that end anywhere.
struct Written {
  Written() : values(at::arange(2'700'000).to(at::kFloat)) {
    const auto* data = static_cast<const char*>(values.data_ptr());
    stored::BlockFile file{folder.file("f"), {}};
    file.content = {{data, 100},
                    {nullptr, 4096 - 100},
                    {data + 100, 7'000'000},
                    {nullptr, 0},
                    {data + 7'000'100, 3'000'000}};
    expected.assign(static_cast<size_t>(file.bytes()), '\0');
    std::memcpy(expected.data(), data, 100);
    std::memcpy(expected.data() + 4096, data + 100, 10'000'000);
    checksums = stored::write_block_files({file, {folder.file("empty"), {}}});
    bytes = file.bytes();
  }
  TemporaryFolder folder;
  at::Tensor values;
  std::string expected;
  std::vector<stored::Checksums> checksums;
  int64_t bytes = 0;
};

TEST(BlockFiles, HoldTheSpansOneAfterTheOtherWithAChecksumPerBlock) {
  const Written written;
  EXPECT_TRUE(read_file(written.folder.file("f")) == written.expected);
  ASSERT_EQ(written.checksums.size(), 2u);
  ASSERT_EQ(written.checksums[0].size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    const auto part = written.expected.substr(i << 20, 1 << 20);
    EXPECT_EQ(written.checksums[0][i],
              base::crc32c(part.data(), static_cast<int64_t>(part.size())));
  }
  EXPECT_TRUE(written.checksums[1].empty());
}

TEST(BlockFiles, AreReadByRangesStraightOrConverted) {
  const Written written;
  const auto straight = at::zeros({1'000'000}), other = at::zeros({500'000}, at::kDouble);
  // From the third float of the second span on.
  const int64_t offset = 4096 + 8, later = offset + 4'000'000;
  stored::WantedFile file{written.folder.file("f"), written.bytes, &written.checksums[0], {}};
  file.ranges.push_back({later, at::kFloat, other, "second"});
  file.ranges.push_back({offset, at::kFloat, straight, "first"});
  const int64_t bytes = stored::read_block_files({file});
  EXPECT_TRUE(at::equal(straight, written.values.narrow(0, 27, 1'000'000)));
  EXPECT_TRUE(at::equal(other, written.values.narrow(0, 1'000'027, 500'000).to(at::kDouble)));
  EXPECT_EQ(bytes, 6 * stored::kBlockBytes);  // 6,004,104 bytes from the beginning on
}

TEST(BlockFiles, ADamagedBlockIsNamedAndOthersAreNotLookedAt) {
  const Written written;
  {
    std::fstream file(written.folder.file("f"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(3 * stored::kBlockBytes + 17);
    file.put('\x55');
  }
  const auto target = at::zeros({1000});
  stored::WantedFile file{written.folder.file("f"), written.bytes, &written.checksums[0], {}};
  file.ranges = {{8192, at::kFloat, target, "early"}};
  EXPECT_EQ(stored::read_block_files({file}), stored::kBlockBytes);
  file.ranges = {{3 * stored::kBlockBytes, at::kFloat, target, "exp_avg of 'x'"}};
  try {
    stored::read_block_files({file});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_THAT(error.what(),
                HasSubstr("/f: bytes 3145728 to 4194304, with exp_avg of 'x': the checksum is "));
  }
}

// Blocks are read up to four together; each has a checksum of its own.
TEST(BlockFiles, EveryBlockOfALongReadIsChecked) {
  const Written written;
  for (int64_t block = 0; block < stored::num_blocks(written.bytes); ++block) {
    auto damaged = written.expected;
    const auto place =
        static_cast<size_t>(std::min(block * stored::kBlockBytes + 777, written.bytes - 1));
    damaged[place] = static_cast<char>(damaged[place] ^ 0x04);
    ::unlink(written.folder.file("f").c_str());
    std::ofstream(written.folder.file("f"), std::ios::binary) << damaged;
    const auto target = at::zeros({written.bytes / 4});
    stored::WantedFile file{written.folder.file("f"), written.bytes, &written.checksums[0], {}};
    file.ranges = {{0, at::kFloat, target, "everything"}};
    EXPECT_THAT(message_of([&] { stored::read_block_files({file}); }),
                HasSubstr(fmt::format("/f: bytes {} to {}, with everything: the checksum is ",
                                      block * stored::kBlockBytes,
                                      std::min((block + 1) * stored::kBlockBytes, written.bytes))));
  }
}

TEST(BlockFiles, WritingCanBeStopped) {
  const TemporaryFolder folder;
  const std::string bytes(100, 'x');
  stored::BlockWriter writer({{folder.file("f"), {{bytes.data(), 100}}}});
  writer.stop();
  EXPECT_FALSE(writer.run());
}

TEST(BlockFiles, HoldWhatTheContentWasWhenItWasSettled) {
  const TemporaryFolder folder;
  std::string content(9'000'000, 'a');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i % 251);
  const std::string before = content;
  stored::BufferPool pool(stored::kWriteBytes);
  stored::BlockWriter writer({{folder.file("f"), {{content.data(), 9'000'000}}}});
  writer.settle(pool);
  EXPECT_EQ(pool.bytes(), 3 * stored::kWriteBytes);
  content.assign(content.size(), 'b');
  EXPECT_TRUE(writer.run());
  EXPECT_TRUE(read_file(folder.file("f")) == before);
  for (size_t i = 0; i < 9; ++i) {
    const auto part = before.substr(i << 20, 1 << 20);
    EXPECT_EQ(writer.checksums()[0][i],
              base::crc32c(part.data(), static_cast<int64_t>(part.size())));
  }
  // The next one finds the memory.
  stored::BlockWriter next({{folder.file("g"), {{content.data(), 9'000'000}}}});
  next.settle(pool);
  EXPECT_EQ(pool.bytes(), 3 * stored::kWriteBytes);
  EXPECT_TRUE(next.run());
  stored::BlockWriter written({{folder.file("h"), {{content.data(), 9'000'000}}}});
  EXPECT_TRUE(written.run());
  written.settle(pool);  // nothing is left to copy
  EXPECT_EQ(pool.bytes(), 3 * stored::kWriteBytes);
}

TEST(BlockFiles, WaitForContentOfADiskInsteadOfCopyingIt) {
  const TemporaryFolder folder;
  std::string content(9'000'000, 'a');
  const std::string before = content;
  stored::ByteSpan span{content.data(), 9'000'000};
  span.is_on_disk = true;
  stored::BufferPool pool(stored::kWriteBytes);
  stored::BlockWriter writer({{folder.file("f"), {span}}});
  std::atomic<bool> begins{false};
  std::thread settling([&] {
    begins = true;
    writer.settle(pool);
    content.assign(content.size(), 'b');
  });
  while (!begins) std::this_thread::yield();
  EXPECT_TRUE(writer.run());
  settling.join();
  EXPECT_EQ(pool.bytes(), 0);
  EXPECT_TRUE(read_file(folder.file("f")) == before);
}

TEST(BlockFiles, LetWhoeverWaitsForThemGoWhenTheyFail) {
  const TemporaryFolder folder;
  const std::string content(100, 'a');
  stored::ByteSpan span{content.data(), 100};
  span.is_on_disk = true;
  stored::BlockWriter writer({{folder.file("missing/f"), {span}}});
  std::thread waiting([&] { writer.await_disk_content(); });
  EXPECT_THROW(writer.run(), Error);
  waiting.join();
}

}  // namespace
}  // namespace fullshard::testing
