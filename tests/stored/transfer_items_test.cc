// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/blocks/transfer_items.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/stored/blocks/direct_file.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

constexpr int64_t kPart = 1 << 16;

std::string pattern(int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 131 + i / 251);
  return text;
}

// Where there is no io_uring, what is asked for is refused and what is left open goes by threads.
std::vector<disk::TransferKind> all_kinds() {
  if (disk::has_uring()) {
    return {disk::TransferKind::uring, disk::TransferKind::threads, disk::TransferKind::automatic};
  }
  return {disk::TransferKind::threads, disk::TransferKind::automatic};
}

class ItemsEitherWay : public ::testing::TestWithParam<disk::TransferKind> {};

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

TEST_P(ItemsEitherWay, WritesAndReadsItemsOfAFilePastThePageCache) {
  const TemporaryFolder folder;
  const std::string expected = pattern(10 * kPart + 100);  // the end is not aligned
  const auto bytes = static_cast<int64_t>(expected.size());
  stored::BufferPool buffers(kPart);
  stored::DirectOutput output(folder.file("f"));
  const auto part = [&](int64_t item) { return std::min(kPart, bytes - item * kPart); };
  Meeting workers;
  const auto prepare = [&](int64_t item, disk::DirectBuffer& buffer) {
    workers.come();
    expected.copy(buffer.data(), static_cast<size_t>(part(item)),
                  static_cast<size_t>(item * kPart));
    return output.transfer(item * kPart, buffer.data(), part(item));
  };
  EXPECT_TRUE(
      stored::do_transfers({.num_items = 11,
                            .num_workers = 2,
                            .depth = 3,
                            .kind = GetParam(),
                            .prepare = prepare,
                            .finish = [&](int64_t, const disk::Transfer& transfer,
                                          int64_t result) { output.complete(transfer, result); }},
                           buffers));
  EXPECT_TRUE(read_file(folder.file("f")) == expected);
  const stored::DirectInput input(folder.file("f"));
  std::string found(expected.size(), '\0');
  const auto keep = [&](int64_t item, const disk::Transfer& transfer, int64_t result) {
    input.complete(transfer, result, part(item), "part");
    found.replace(static_cast<size_t>(item * kPart), static_cast<size_t>(part(item)), transfer.data,
                  static_cast<size_t>(part(item)));
  };
  stored::do_transfers({.num_items = 11,
                        .num_workers = 2,
                        .depth = 3,
                        .kind = GetParam(),
                        .prepare =
                            [&](int64_t item, disk::DirectBuffer& buffer) {
                              return input.transfer(item * kPart, buffer.data(), part(item));
                            },
                        .finish = keep},
                       buffers);
  EXPECT_TRUE(found == expected);
  EXPECT_EQ(buffers.bytes(), 6 * kPart);  // of two workers with three each, kept for reading
}

std::string name_of(const ::testing::TestParamInfo<disk::TransferKind>& test) {
  if (test.param == disk::TransferKind::automatic) return "automatic";
  return test.param == disk::TransferKind::uring ? "uring" : "threads";
}

INSTANTIATE_TEST_SUITE_P(TransferItems, ItemsEitherWay, ::testing::ValuesIn(all_kinds()), name_of);

TEST(TransferItems, EndWithTheFirstErrorOrWhenTheyAreStopped) {
  const TemporaryFolder folder;
  const int file = ::open(folder.file("f").c_str(), O_RDWR | O_CREAT, 0600);
  stored::BufferPool buffers(kPart);
  std::atomic<int> num_begun{0};
  stored::TransferPlan plan{.num_items = 1000, .num_workers = 2, .depth = 3};
  plan.prepare = [&](int64_t item, disk::DirectBuffer& buffer) -> disk::Transfer {
    ++num_begun;
    return {file, true, item * kPart, buffer.data(), kPart};
  };
  plan.finish = [](int64_t item, const disk::Transfer&, int64_t) { check(item != 5, "five"); };
  EXPECT_THROW(stored::do_transfers(plan, buffers), Error);
  EXPECT_LT(num_begun, 1000);
  std::atomic<bool> stop{false};
  plan.finish = [&](int64_t, const disk::Transfer&, int64_t) { stop = true; };
  num_begun = 0;
  EXPECT_FALSE(stored::do_transfers(plan, buffers, &stop));
  EXPECT_LE(num_begun, 6);
  // All have come back: whoever takes as many as were ever taken makes none. How many that were
  // depends on whether the second worker came before the end.
  const int64_t bytes = buffers.bytes();
  EXPECT_THAT(bytes, ::testing::AnyOf(3 * kPart, 6 * kPart));
  std::vector<disk::DirectBuffer> taken;
  for (int64_t i = 0; i < bytes / kPart; ++i) taken.push_back(buffers.take());
  EXPECT_EQ(buffers.bytes(), bytes);
  ::close(file);
}

}  // namespace
}  // namespace fullshard::testing
