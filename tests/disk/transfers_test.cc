// SPDX-License-Identifier: Apache-2.0
#include "fullshard/disk/transfers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/files.h"

namespace fullshard::testing {
namespace {

constexpr int64_t kPart = 1 << 16;

std::string pattern(int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 131 + i / 251);
  return text;
}

// Asked without liburing.
bool kernel_has_uring() {
  io_uring_params parameters{};
  const long ring = ::syscall(SYS_io_uring_setup, 2, &parameters);
  if (ring >= 0) ::close(static_cast<int>(ring));
  return ring >= 0;
}

TEST(Transfers, KnowWhetherThereIsUring) {
  EXPECT_EQ(disk::has_uring(), FULLSHARD_HAS_URING && kernel_has_uring());
  EXPECT_EQ(disk::make_transfers(1, disk::TransferKind::uring) != nullptr, disk::has_uring());
  EXPECT_NE(disk::make_transfers(1, disk::TransferKind::automatic), nullptr);
}

// Where there is no io_uring, what is asked for is refused and what is left open goes by threads.
std::vector<disk::TransferKind> all_kinds() {
  if (disk::has_uring()) {
    return {disk::TransferKind::uring, disk::TransferKind::threads, disk::TransferKind::automatic};
  }
  return {disk::TransferKind::threads, disk::TransferKind::automatic};
}

class EitherWay : public ::testing::TestWithParam<disk::TransferKind> {};

TEST_P(EitherWay, MovesTheSameBytesInAnyOrder) {
  const TemporaryFolder folder;
  constexpr int64_t kParts = 9, kDepth = 4;
  std::string expected = pattern(kParts * kPart), found(expected.size(), '\0');
  const auto move_all = [&](int descriptor, std::string& text, bool is_write) {
    const auto transfers = disk::make_transfers(kDepth, GetParam());
    ASSERT_NE(transfers, nullptr);
    int64_t begun = 0, ended = 0;
    while (ended < kParts) {
      for (; begun < kParts && begun - ended < kDepth; ++begun) {
        const int64_t part = begun * 4 % kParts;
        transfers->begin(part,
                         {descriptor, is_write, part * kPart, text.data() + part * kPart, kPart});
      }
      EXPECT_EQ(transfers->wait().result, kPart);
      ++ended;
    }
  };
  const int file = ::open(folder.file("f").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  move_all(file, expected, true);
  EXPECT_TRUE(read_file(folder.file("f")) == expected);
  move_all(file, found, false);
  EXPECT_TRUE(found == expected);
  ::close(file);
}

TEST_P(EitherWay, TellsWhatTheKernelSaid) {
  const TemporaryFolder folder;
  const int file = ::open(folder.file("f").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::ftruncate(file, 100), 0);
  std::string text(200, 'x');
  const auto transfers = disk::make_transfers(1, GetParam());
  const auto result = [&](const disk::Transfer& transfer) {
    transfers->begin(7, transfer);
    const auto ended = transfers->wait();
    EXPECT_EQ(ended.id, 7);
    return ended.result;
  };
  EXPECT_EQ(result({file, false, 40, text.data(), 200}), 60);
  EXPECT_EQ(result({file, false, 100, text.data(), 200}), 0);
  EXPECT_EQ(result({-1, false, 0, text.data(), 200}), -EBADF);
  ::close(file);
}

TEST_P(EitherWay, BeginsWhatIsPreparedTogetherWithOneSubmission) {
  const TemporaryFolder folder;
  const int file = ::open(folder.file("f").c_str(), O_RDWR | O_CREAT, 0600);
  std::string text = pattern(3 * kPart);
  const auto transfers = disk::make_transfers(3, GetParam());
  for (int64_t part = 0; part < 3; ++part) {
    transfers->prepare(part, {file, true, part * kPart, text.data() + part * kPart, kPart});
  }
  EXPECT_EQ(read_file(folder.file("f")), "");  // nothing has begun
  transfers->submit();
  for (int64_t part = 0; part < 3; ++part) EXPECT_EQ(transfers->wait().result, kPart);
  EXPECT_TRUE(read_file(folder.file("f")) == text);
  ::close(file);
}

std::string name_of(const ::testing::TestParamInfo<disk::TransferKind>& test) {
  if (test.param == disk::TransferKind::automatic) return "automatic";
  return test.param == disk::TransferKind::uring ? "uring" : "threads";
}

INSTANTIATE_TEST_SUITE_P(Transfers, EitherWay, ::testing::ValuesIn(all_kinds()), name_of);

}  // namespace
}  // namespace fullshard::testing
