// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/disk/direct_buffer.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/live_heap.h"
#include "tests/tiers/fake_disk.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWindow = 4096;

std::vector<tiers::SlotFile::Window> whole_slots(const std::vector<int64_t>& sizes) {
  std::vector<tiers::SlotFile::Window> visits;
  for (size_t i = 0; i < sizes.size(); ++i) {
    visits.push_back({static_cast<int>(i), 0, sizes[i]});
  }
  return visits;
}

TEST(Ring, CarriesChangesFromPassToPass) {
  const TemporaryFolder folder;
  const std::vector<int64_t> sizes = {10, 3 * kWindow, kWindow, 1, 5000};
  for (const bool reads_ahead : {true, false}) {
    for (const bool writes_behind : {true, false}) {
      for (const int64_t buffers : {1, 2, 3, 9}) {
        tiers::SlotFile file({.folder = folder.path(), .slot_bytes = sizes});
        tiers::Ring ring(
            file, whole_slots(sizes),
            {.buffer_count = buffers, .reads_ahead = reads_ahead, .writes_behind = writes_behind});
        for (char pass = 0; pass < 4; ++pass) {
          for (int64_t i = 0; i < ring.num_visits(); ++i) {
            const auto bytes = ring.acquire(i);
            ASSERT_EQ(static_cast<int64_t>(bytes.size()), sizes[static_cast<size_t>(i)]);
            const auto is_old = [&](char c) { return c == (pass == 0 ? 0 : pass * 10 + i); };
            ASSERT_TRUE(std::all_of(bytes.begin(), bytes.end(), is_old)) << int{pass} << ' ' << i;
            std::fill(bytes.begin(), bytes.end(), static_cast<char>((pass + 1) * 10 + i));
            ring.release(i, true);
          }
        }
        ring.flush();
        const int64_t sum = 10 + 4 * kWindow + 1 + 5000;
        EXPECT_EQ(ring.counters().bytes_written, 4 * sum);
        EXPECT_GE(ring.counters().bytes_read, 4 * sum);  // and what is ahead
        EXPECT_EQ(ring.counters().bytes_visited, 4 * sum);
        EXPECT_EQ(file.counters().bytes_written, 4 * (2 + 4 + 2 + 0) * kWindow);
      }
    }
  }
}

TEST(Ring, WritesOnlyWhatWasChanged) {
  const TemporaryFolder folder;
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = {kWindow, kWindow}});
  tiers::Ring ring(file, whole_slots({kWindow, kWindow}),
                   {.buffer_count = 2, .reads_ahead = false});
  for (int64_t i = 0; i < 2; ++i) {
    std::fill_n(ring.acquire(i).data(), kWindow, 'x');
    ring.release(i, i == 1);
  }
  EXPECT_EQ(ring.acquire(0)[0], '\0');
  EXPECT_EQ(ring.acquire(1)[0], 'x');
  EXPECT_EQ(ring.counters().bytes_written, kWindow);
  EXPECT_EQ(ring.counters().bytes_read, 4 * kWindow);
}

TEST(Ring, HoldsItsBytesAndNoMore) {
  const TemporaryFolder folder;
  std::vector<int64_t> asked;
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = std::vector<int64_t>(20, 5000)});
  const auto allocate = [&](int64_t bytes) {
    asked.push_back(bytes);
    void* memory = std::aligned_alloc(kWindow, static_cast<size_t>(bytes + kWindow));
    std::memset(static_cast<char*>(memory) + bytes, '#', kWindow);  // beyond the ring
    return std::shared_ptr<char>(static_cast<char*>(memory), &std::free);
  };
  std::shared_ptr<char> seen;
  tiers::Ring ring(file, whole_slots(std::vector<int64_t>(20, 5000)), {.buffer_count = 3},
                   [&](int64_t bytes) { return seen = allocate(bytes); });
  EXPECT_EQ(asked, (std::vector<int64_t>{3 * 2 * kWindow}));
  EXPECT_EQ(ring.bytes(), 6 * kWindow);
  const auto pass = [&] {
    for (int64_t i = 0; i < 20; ++i) {
      const auto bytes = ring.acquire(i);
      EXPECT_TRUE(bytes.data() >= seen.get() &&
                  bytes.data() + bytes.size() <= seen.get() + ring.bytes());
      ring.release(i, true);
    }
  };
  pass();
  const int64_t before = live_heap_bytes();
  for (int i = 0; i < 50; ++i) pass();
  EXPECT_LT(live_heap_bytes() - before, 4096);  // buffers are reused, nothing is kept
  EXPECT_EQ(asked.size(), 1u);
  ring.flush();
  const char* const end = seen.get() + ring.bytes();
  EXPECT_TRUE(std::all_of(end, end + kWindow, [](char c) { return c == '#'; }));
}

TEST(Ring, ReadsAheadOnlyAsFarAsItsBuffersGo) {
  const TemporaryFolder folder;
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = std::vector<int64_t>(10, kWindow)});
  tiers::Ring ring(file, whole_slots(std::vector<int64_t>(10, kWindow)), {.buffer_count = 4});
  ring.read_ahead();
  EXPECT_EQ(ring.counters().bytes_read, 4 * kWindow);
  ring.acquire(0);
  EXPECT_EQ(ring.counters().bytes_read, 4 * kWindow);
  ring.release(0, false);
  EXPECT_EQ(ring.counters().bytes_read, 5 * kWindow);
}

// Reads that a test lets through one by one.
class Gate {
 public:
  void open(int64_t num) {
    const std::lock_guard lock(mutex_);
    num_open_ += num;
    opened_.notify_all();
  }
  int64_t pass(const disk::Transfer&) {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return num_open_ > 0; });
    --num_open_;
    return kCarryOut;
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  int64_t num_open_ = 0;
};

TEST(Ring, WaitsForNothingButTheReadOfItsVisit) {
  const TemporaryFolder folder;
  Gate gate;
  tiers::SlotFile file({.folder = folder.path(),
                        .slot_bytes = {kWindow, kWindow, kWindow},
                        .disk = {.queue_depth = 1},
                        .make_transfers = [&](int) {
                          return std::make_unique<FakeDisk>(
                              [&](const disk::Transfer& transfer) { return gate.pass(transfer); });
                        }});
  tiers::Ring ring(file, whole_slots({kWindow, kWindow, kWindow}), {.buffer_count = 3});
  ring.read_ahead();
  gate.open(1);
  ring.acquire(0);  // would hang if it waited for the second one
  EXPECT_LE(ring.counters().num_read_waits, 1);
  EXPECT_EQ(ring.counters().read_wait_bytes, ring.counters().num_read_waits * kWindow);
  gate.open(1000);
  ring.acquire(1);
  ring.acquire(2);
  EXPECT_EQ(ring.counters().bytes_read, 3 * kWindow);
  EXPECT_EQ(ring.counters().num_write_waits, 0);
}

TEST(Ring, NeverReadsAheadWhatAnEarlierVisitMayStillChange) {
  const TemporaryFolder folder;
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = {3 * kWindow, kWindow}});
  // Forward and back, as parameters are visited, with windows that overlap.
  const std::vector<tiers::SlotFile::Window> visits = {
      {0, 0, 2 * kWindow}, {1, 0, kWindow}, {1, 0, kWindow}, {0, kWindow, 2 * kWindow}};
  tiers::Ring ring(file, visits, {.buffer_count = 4});
  for (char pass = 1; pass < 20; ++pass) {
    const auto first = ring.acquire(0);
    ASSERT_EQ(first[kWindow], pass == 1 ? 0 : -pass + 1);  // by the last visit of the pass before
    std::fill(first.begin(), first.end(), pass);
    ring.release(0, true);
    ring.acquire(1)[0] = pass;
    ring.release(1, true);
    ASSERT_EQ(ring.acquire(2)[0], pass);
    ring.release(2, false);
    const auto last = ring.acquire(3);
    ASSERT_EQ(last[0], pass);
    std::fill(last.begin(), last.end(), static_cast<char>(-pass));
    ring.release(3, true);
  }
}

TEST(Ring, TellsOfAWrongOrderAndOfTooManyHeld) {
  const TemporaryFolder folder;
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = {kWindow, kWindow, kWindow}});
  tiers::Ring ring(file, whole_slots({kWindow, kWindow, kWindow}), {.buffer_count = 2});
  EXPECT_EQ(message_of([&] { ring.acquire(1); }), "offload: visit 1 of a ring, expected 0");
  EXPECT_EQ(message_of([&] { ring.release(0, true); }),
            "offload: visit 0 of a ring is released, but not held");
  ring.acquire(0);
  ring.acquire(1);
  EXPECT_EQ(message_of([&] { ring.acquire(2); }),
            "offload: visit 2 of a ring whose 2 buffers are all held; release one");
  EXPECT_EQ(message_of([&] { ring.restart(); }),
            "offload: a ring is restarted while some of it is held; release it first");
  ring.release(1, true);
  ring.acquire(2);
  tiers::Ring same(file, {{0, 0, kWindow}, {0, 0, kWindow}}, {.buffer_count = 2});
  same.acquire(0);
  EXPECT_EQ(message_of([&] { same.acquire(1); }),
            "offload: visit 1 of a ring is to bytes that are still held; release them");
}

TEST(Ring, RefusesSizesThatMakeNoSense) {
  const TemporaryFolder folder;
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = {kWindow}});
  const auto refusal = [&](const tiers::RingOptions& options) {
    return message_of([&] { tiers::Ring(file, whole_slots({kWindow}), options); });
  };
  EXPECT_EQ(refusal({.buffer_count = 0}), "offload: buffer_count is 0, expected at least 1");
  EXPECT_EQ(refusal({.buffer_bytes = 100}),
            "offload: a buffer has 100 bytes, but one of 4096 is visited; make buffer_size larger");
  EXPECT_EQ(refusal({.buffer_count = 8, .buffer_bytes = int64_t{1} << 60}),
            "offload: 8 buffers of 1152921504606846976 bytes, expected sizes that fit memory");
  EXPECT_EQ(message_of([&] { tiers::Ring(file, {}, {}); }),
            "offload: a ring over '" + folder.path() + "' without anything to visit");
}

TEST(Ring, TellsOfAWriteThatFailedBehindItsBack) {
  const TemporaryFolder folder;
  std::atomic<bool> is_broken{false};
  tiers::SlotFile file(
      {.folder = folder.path(), .slot_bytes = {kWindow, kWindow}, .make_transfers = [&](int) {
         return std::make_unique<FakeDisk>([&](const disk::Transfer& transfer) -> int64_t {
           return transfer.is_write && is_broken ? -EIO : kCarryOut;
         });
       }});
  // Reading ahead would come to the lost slot again, as soon as the last write has ended.
  tiers::Ring ring(file, whole_slots({kWindow, kWindow}),
                   {.buffer_count = 1, .reads_ahead = false});
  is_broken = true;
  ring.acquire(0);
  const std::string told = message_of([&] {
    ring.release(0, true);
    ring.flush();
  });
  EXPECT_THAT(told, HasSubstr("cannot write slot 0 at byte 0: Input/output error"));
  is_broken = false;
  ring.acquire(1);  // the buffer is free again
  ring.release(1, true);
  ring.flush();
}

TEST(Ring, SeesWhatOthersWroteAfterARestart) {
  const TemporaryFolder folder;
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = {kWindow, kWindow}});
  tiers::Ring ring(file, whole_slots({kWindow, kWindow}), {.buffer_count = 2});
  ring.acquire(0);
  ring.release(0, false);
  ring.restart();
  disk::DirectBuffer data;
  data.reserve(kWindow);
  std::fill_n(data.data(), kWindow, 'n');
  file.wait(file.write({.slot = 0, .bytes = kWindow}, data.data()));
  EXPECT_EQ(ring.acquire(0)[0], 'n');
}

// Any order of releases, any sizes, against the same in memory.
TEST(Ring, IsAsGoodAsMemory) {
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  const TemporaryFolder folder;
  for (int round = 0; round < 6; ++round) {
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < 3 + below(9); ++i) sizes.push_back(1 + below(3 * kWindow));
    tiers::SlotFile file(
        {.folder = folder.path(),
         .slot_bytes = sizes,
         .disk = {
             .block_size = kWindow, .queue_depth = 1 + below(4), .num_threads = 1 + below(2)}});
    const int64_t count = 2 + below(3);
    tiers::Ring ring(
        file, whole_slots(sizes),
        {.buffer_count = count, .reads_ahead = below(3) > 0, .writes_behind = below(3) > 0});
    std::vector<std::string> model;
    for (const int64_t size : sizes) model.emplace_back(static_cast<size_t>(size), '\0');
    for (int pass = 0; pass < 5; ++pass) {
      std::vector<int64_t> held;
      const auto release_one = [&] {
        const auto index = below(static_cast<int64_t>(held.size()));
        const int64_t visit = held[static_cast<size_t>(index)];
        held.erase(held.begin() + index);
        ring.release(visit, true);
      };
      for (int64_t i = 0; i < ring.num_visits(); ++i) {
        while (static_cast<int64_t>(held.size()) >= count - 1) release_one();
        const auto bytes = ring.acquire(i);
        std::string& expected = model[static_cast<size_t>(i)];
        ASSERT_TRUE(std::string(bytes.data(), bytes.size()) == expected);
        expected.assign(expected.size(), static_cast<char>(below(256)));
        std::copy(expected.begin(), expected.end(), bytes.begin());
        held.push_back(i);
      }
      while (!held.empty()) release_one();
    }
    ring.flush();
  }
}

}  // namespace
}  // namespace fullshard::testing
