#include "fullshard/stored/transfers.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/stored/direct_file.h"
#include "fullshard/stored/transfer_items.h"
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
  EXPECT_EQ(has_uring(), FULLSHARD_HAS_URING && kernel_has_uring());
  EXPECT_EQ(make_transfers(1, TransferKind::uring) != nullptr, has_uring());
  EXPECT_NE(make_transfers(1, TransferKind::automatic), nullptr);
}

// Where there is no io_uring, what is asked for is refused and what is left open goes by threads.
std::vector<TransferKind> all_kinds() {
  if (has_uring()) {
    return {TransferKind::uring, TransferKind::threads, TransferKind::automatic};
  }
  return {TransferKind::threads, TransferKind::automatic};
}

class EitherWay : public ::testing::TestWithParam<TransferKind> {};

TEST_P(EitherWay, MovesTheSameBytesInAnyOrder) {
  const TemporaryFolder folder;
  constexpr int64_t kParts = 9, kDepth = 4;
  std::string expected = pattern(kParts * kPart), found(expected.size(), '\0');
  const auto move_all = [&](int descriptor, std::string& text, bool is_write) {
    const auto transfers = make_transfers(kDepth, GetParam());
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
  const auto transfers = make_transfers(1, GetParam());
  const auto result = [&](const Transfer& transfer) {
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

// Two threads that meet once: without it one worker may have done everything before the other
// came.
class Meeting {
 public:
  void come() {
    std::unique_lock lock(mutex_);
    here_.insert(std::this_thread::get_id());
    changed_.notify_all();
    changed_.wait(lock, [this] { return here_.size() == 2; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::thread::id> here_;
};

TEST_P(EitherWay, WritesAndReadsItemsOfAFilePastThePageCache) {
  const TemporaryFolder folder;
  const std::string expected = pattern(10 * kPart + 100);  // the end is not aligned
  const auto bytes = static_cast<int64_t>(expected.size());
  BufferPool buffers(kPart);
  DirectOutput output(folder.file("f"));
  const auto part = [&](int64_t item) { return std::min(kPart, bytes - item * kPart); };
  Meeting workers;
  const auto prepare = [&](int64_t item, DirectBuffer& buffer) {
    workers.come();
    expected.copy(buffer.data(), static_cast<size_t>(part(item)),
                  static_cast<size_t>(item * kPart));
    return output.transfer(item * kPart, buffer.data(), part(item));
  };
  EXPECT_TRUE(do_transfers({.num_items = 11,
                            .num_workers = 2,
                            .depth = 3,
                            .kind = GetParam(),
                            .prepare = prepare,
                            .finish = [&](int64_t, const Transfer& transfer,
                                          int64_t result) { output.complete(transfer, result); }},
                           buffers));
  EXPECT_TRUE(read_file(folder.file("f")) == expected);
  const DirectInput input(folder.file("f"));
  std::string found(expected.size(), '\0');
  const auto keep = [&](int64_t item, const Transfer& transfer, int64_t result) {
    input.complete(transfer, result, part(item), "part");
    found.replace(static_cast<size_t>(item * kPart), static_cast<size_t>(part(item)), transfer.data,
                  static_cast<size_t>(part(item)));
  };
  do_transfers({.num_items = 11,
                .num_workers = 2,
                .depth = 3,
                .kind = GetParam(),
                .prepare =
                    [&](int64_t item, DirectBuffer& buffer) {
                      return input.transfer(item * kPart, buffer.data(), part(item));
                    },
                .finish = keep},
               buffers);
  EXPECT_TRUE(found == expected);
  EXPECT_EQ(buffers.bytes(), 6 * kPart);  // of two workers with three each, kept for reading
}

std::string name_of(const ::testing::TestParamInfo<TransferKind>& test) {
  if (test.param == TransferKind::automatic) return "automatic";
  return test.param == TransferKind::uring ? "uring" : "threads";
}

INSTANTIATE_TEST_SUITE_P(Transfers, EitherWay, ::testing::ValuesIn(all_kinds()), name_of);

TEST(TransferItems, EndWithTheFirstErrorOrWhenTheyAreStopped) {
  const TemporaryFolder folder;
  const int file = ::open(folder.file("f").c_str(), O_RDWR | O_CREAT, 0600);
  BufferPool buffers(kPart);
  std::atomic<int> num_begun{0};
  TransferPlan plan{.num_items = 1000, .num_workers = 2, .depth = 3};
  plan.prepare = [&](int64_t item, DirectBuffer& buffer) -> Transfer {
    ++num_begun;
    return {file, true, item * kPart, buffer.data(), kPart};
  };
  plan.finish = [](int64_t item, const Transfer&, int64_t) { check(item != 5, "five"); };
  EXPECT_THROW(do_transfers(plan, buffers), Error);
  EXPECT_LT(num_begun, 1000);
  std::atomic<bool> stop{false};
  plan.finish = [&](int64_t, const Transfer&, int64_t) { stop = true; };
  num_begun = 0;
  EXPECT_FALSE(do_transfers(plan, buffers, &stop));
  EXPECT_LE(num_begun, 6);
  // All have come back: whoever takes as many as were ever taken makes none. How many that were
  // depends on whether the second worker came before the end.
  const int64_t bytes = buffers.bytes();
  EXPECT_THAT(bytes, ::testing::AnyOf(3 * kPart, 6 * kPart));
  std::vector<DirectBuffer> taken;
  for (int64_t i = 0; i < bytes / kPart; ++i) taken.push_back(buffers.take());
  EXPECT_EQ(buffers.bytes(), bytes);
  ::close(file);
}

}  // namespace
}  // namespace fullshard::testing
