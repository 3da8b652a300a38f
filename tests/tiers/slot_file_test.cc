// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/slot_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <random>
#include <string>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/disk/direct_buffer.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/tiers/fake_disk.h"
#include "tests/tiers/slot_buffers.h"

namespace fullshard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SlotFile, GivesBackWhatWasWrittenAndZerosElsewhere) {
  const TemporaryFolder folder;
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = {5, 0, 3 * kPage, kPage}});
  EXPECT_EQ(file.bytes(), 5 * kPage);
  disk::DirectBuffer written = buffer_of(3 * kPage, 'x'), found = buffer_of(3 * kPage, '?');
  const auto ticket = file.write({.slot = 2, .offset = kPage, .bytes = 2 * kPage}, written.data());
  file.wait(ticket);
  file.wait(file.read({.slot = 2, .bytes = 3 * kPage}, found.data()));
  EXPECT_EQ(std::string(found.data(), static_cast<size_t>(3 * kPage)),
            std::string(static_cast<size_t>(kPage), '\0') +
                std::string(static_cast<size_t>(2 * kPage), 'x'));
  file.wait(file.read({.slot = 0, .bytes = 5}, found.data()));
  EXPECT_EQ(std::string(found.data(), 5), std::string(5, '\0'));
  file.wait(file.read({.slot = 3, .bytes = kPage}, found.data()));
  EXPECT_EQ(found.data()[kPage - 1], '\0');
  file.wait(file.write({.slot = 1}, written.data()));  // nothing
}

TEST(SlotFile, HasNoNameAndIsForItsOwnerOnly) {
  const TemporaryFolder folder;
  const tiers::UnnamedFile file(folder.path(), 3 * kPage);
  EXPECT_THAT(entries_of(folder.path()), IsEmpty());
  struct stat status {};
  ASSERT_EQ(::fstat(file.plain(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(status.st_size, 3 * kPage);
  EXPECT_GE(status.st_blocks * 512, 3 * kPage);  // taken, not only promised
  EXPECT_EQ(status.st_nlink, 0u);
}

// Parent and child meet over a pipe, so that the kill falls into a life with a file full of writes.
TEST(SlotFile, LeavesNothingWhenItsProcessIsKilled) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    tiers::SlotFile file({.folder = folder.path(), .slot_bytes = {64 * kPage}});
    disk::DirectBuffer data = buffer_of(64 * kPage, 'k');
    file.wait(file.write({.bytes = 64 * kPage}, data.data()));
    if (::write(ready[1], "r", 1) != 1) ::_exit(1);
    while (true) file.wait(file.write({.bytes = 64 * kPage}, data.data()));
  }
  ::close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(entries_of(folder.path()), IsEmpty());
  ::close(ready[0]);
}

TEST(SlotFile, RefusesFoldersThatCannotHoldAFile) {
  const TemporaryFolder folder;
  const auto refusal = [](const std::string& path) {
    return message_of([&] { tiers::SlotFile({.folder = path, .slot_bytes = {1}}); });
  };
  EXPECT_EQ(refusal(folder.file("missing")),
            "offload: no file can be made in '" + folder.file("missing") +
                "': No such file or directory; name a folder on a local disk that exists and that "
                "this user may write to");
  EXPECT_THAT(refusal("/proc"), HasSubstr("offload: no file can be made in '/proc': "));
  ::close(::open(folder.file("plain").c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_THAT(refusal(folder.file("plain")), HasSubstr("Not a directory"));
  if (::geteuid() == 0) return;  // who may write everywhere
  ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
  EXPECT_THAT(refusal(folder.path()), HasSubstr("Permission denied"));
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
}

// No disk is that large. It is asked for its free space first, so that no test fills it for others.
TEST(SlotFile, SaysAtOnceThatTheDiskIsTooSmall) {
  const TemporaryFolder folder;
  const int64_t slot = int64_t{1} << 42;  // 4 TiB: below ext4's largest file
  const std::string message = message_of([&] {
    tiers::SlotFile({.folder = folder.path(), .slot_bytes = {slot, slot, slot}});
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr("offload: 12 TiB are needed in '" + folder.path() + "', where "),
                    HasSubstr("are free: No space left on device; free some space, or name a "
                              "folder on another disk")));
  EXPECT_THAT(entries_of(folder.path()), IsEmpty());
}

// A quota of a sort that needs no root; without the check the process would end by SIGXFSZ.
TEST(SlotFile, KeepsToTheLimitOfAFilesSize) {
  const TemporaryFolder folder;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 8 * kPage;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      message_of([&] { tiers::SlotFile({.folder = folder.path(), .slot_bytes = {9 * kPage}}); });
  EXPECT_EQ(
      message_of([&] { tiers::SlotFile({.folder = folder.path(), .slot_bytes = {8 * kPage}}); }),
      "no error");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(message, "offload: 36 KiB are needed in '" + folder.path() +
                         "', but a file may only have 32 KiB here; raise the limit (ulimit -f)");
}

TEST(SlotFile, RefusesSettingsAndWindowsThatMakeNoSense) {
  const TemporaryFolder folder;
  const auto with = [&](const tiers::DiskSettings& disk) {
    return message_of(
        [&] { tiers::SlotFile({.folder = folder.path(), .slot_bytes = {1}, .disk = disk}); });
  };
  EXPECT_EQ(with({.block_size = 0}),
            "aio.block_size: is 0, expected a multiple of 4096 up to 1073741824");
  EXPECT_EQ(with({.block_size = 1000}),
            "aio.block_size: is 1000, expected a multiple of 4096 up to 1073741824");
  EXPECT_EQ(with({.block_size = int64_t{1} << 40}),
            "aio.block_size: is 1099511627776, expected a multiple of 4096 up to 1073741824");
  EXPECT_EQ(with({.queue_depth = 0}), "aio.queue_depth: is 0, expected a number from 1 to 4096");
  EXPECT_EQ(with({.num_threads = 65}),
            "aio.intra_op_parallelism: is 65, expected a number from 1 to 64");
  EXPECT_EQ(
      message_of([&] { tiers::SlotFile({.folder = folder.path(), .slot_bytes = {-1}}); }),
      "offload: slot 0 is to have -1 bytes, expected a number of at least 0 that fits a file");
  tiers::SlotFile file({.folder = folder.path(), .slot_bytes = {2 * kPage}});
  disk::DirectBuffer data = buffer_of(2 * kPage, 'x');
  const auto reading = [&](const tiers::SlotFile::Window& window, char* memory) {
    return message_of([&] { file.read(window, memory); });
  };
  EXPECT_EQ(reading({.slot = 1}, data.data()), "offload: no slot 1, there are 1");
  EXPECT_EQ(reading({.offset = kPage, .bytes = kPage + 1}, data.data()),
            "offload: bytes 4096 to 8193 of slot 0, which has 8192");
  EXPECT_EQ(reading({.offset = 8, .bytes = 8}, data.data()),
            "offload: slot 0 at byte 8, expected an offset and memory aligned to 4096 bytes");
  EXPECT_EQ(reading({.bytes = 8}, data.data() + 8),
            "offload: slot 0 at byte 0, expected an offset and memory aligned to 4096 bytes");
}

TEST(SlotFile, HasAsManyTicketsAsItWasMadeWith) {
  const TemporaryFolder folder;
  tiers::SlotFile file(
      {.folder = folder.path(), .slot_bytes = {kPage, kPage, kPage}, .num_tickets = 2});
  disk::DirectBuffer data = buffer_of(3 * kPage, 'x');
  const auto first = file.write({.slot = 0, .bytes = kPage}, data.data());
  file.write({.slot = 1, .bytes = kPage}, data.data() + kPage);
  EXPECT_EQ(message_of([&] { file.write({.slot = 2, .bytes = kPage}, data.data()); }),
            "offload: 2 reads and writes have not been waited for, which is all there is room for");
  file.wait(first);
  file.wait(file.write({.slot = 2, .bytes = kPage}, data.data()));
}

// Every setting of aio, by the counter that shows it.
tiers::DiskCounters counters_after(const tiers::DiskSettings& disk) {
  const TemporaryFolder folder;
  const int64_t bytes = 16 * kPage;
  tiers::SlotFile file(
      {.folder = folder.path(), .slot_bytes = {bytes}, .disk = disk, .make_transfers = [](int) {
         return std::make_unique<FakeDisk>([](const disk::Transfer&) { return kCarryOut; });
       }});
  disk::DirectBuffer data = buffer_of(bytes, 'c');
  file.wait(file.write({.bytes = bytes}, data.data()));
  return file.counters();
}

TEST(DiskSettings, BlockSizeIsTheLargestRequest) {
  const tiers::DiskCounters small = counters_after({.block_size = kPage});
  EXPECT_EQ(small.largest_request, kPage);
  EXPECT_EQ(small.num_requests, 16);
  EXPECT_EQ(small.bytes_written, 16 * kPage);
  EXPECT_EQ(small.bytes_read, 0);
  const tiers::DiskCounters large = counters_after({.block_size = 6 * kPage});
  EXPECT_EQ(large.largest_request, 6 * kPage);
  EXPECT_EQ(large.num_requests, 3);
}

TEST(DiskSettings, QueueDepthIsWhatIsUnderWay) {
  EXPECT_EQ(counters_after({.block_size = kPage, .queue_depth = 4}).peak_under_way, 4);
  EXPECT_EQ(counters_after({.block_size = kPage, .queue_depth = 1}).peak_under_way, 1);
  EXPECT_EQ(counters_after({.block_size = kPage, .queue_depth = 99}).peak_under_way, 16);
}

TEST(DiskSettings, ThreadsShareOneWriteInWholeBlocks) {
  EXPECT_THAT(counters_after({.block_size = kPage, .num_threads = 3}).bytes_of_thread,
              ElementsAre(6 * kPage, 5 * kPage, 5 * kPage));
  EXPECT_THAT(counters_after({.block_size = 8 * kPage, .num_threads = 3}).bytes_of_thread,
              ElementsAre(8 * kPage, 8 * kPage, 0));
}

TEST(DiskSettings, SingleSubmitIsACallForEachRequest) {
  tiers::DiskSettings disk{.block_size = kPage, .queue_depth = 4, .overlap_events = false};
  EXPECT_EQ(counters_after(disk).num_submits, 4);
  disk.single_submit = true;
  EXPECT_EQ(counters_after(disk).num_submits, 16);
}

TEST(DiskSettings, OverlapEventsAsksForMoreWhileOthersAreUnderWay) {
  tiers::DiskSettings disk{.block_size = kPage, .queue_depth = 4};
  EXPECT_EQ(counters_after(disk).num_overlapping, 12);
  disk.overlap_events = false;
  EXPECT_EQ(counters_after(disk).num_overlapping, 0);
}

TEST(DiskSettings, AreWrittenAsDeepSpeedReadsThem) {
  EXPECT_EQ(tiers::aio_json({}),
            R"({"aio": {"block_size": 1048576, "queue_depth": 8, "intra_op_parallelism": 1, )"
            R"("single_submit": false, "overlap_events": true}})");
}

struct Broken {
  TemporaryFolder folder{};
  disk::DirectBuffer data = buffer_of(8 * kPage, 'b');
  tiers::SlotFile file;

  explicit Broken(Answer answer)
      : file({.folder = folder.path(),
              .slot_bytes = {kPage, 8 * kPage},
              .disk = {.block_size = kPage, .queue_depth = 2},
              .owner = "rank 3",
              .make_transfers = [answer](int) { return std::make_unique<FakeDisk>(answer); }}) {}

  std::string writing() {
    return message_of([&] { file.wait(file.write({.slot = 1, .bytes = 8 * kPage}, data.data())); });
  }
  std::string reading() {
    return message_of([&] { file.wait(file.read({.slot = 1, .bytes = 8 * kPage}, data.data())); });
  }
};

TEST(SlotFile, TellsWhatTheDiskSaidWithFolderOperationAndSlot) {
  Broken broken([](const disk::Transfer& transfer) -> int64_t {
    return transfer.offset == 4 * kPage ? -EIO : kCarryOut;
  });
  const std::string begin = "offload: rank 3, '" + broken.folder.path() + "': cannot ";
  const std::string end =
      " slot 1 at byte 12288: Input/output error; the disk or its file system failed, see the "
      "kernel's log (dmesg)";
  EXPECT_EQ(broken.reading(), begin + "read" + end);
  EXPECT_EQ(broken.writing(), begin + "write" + end);
  // The file goes on for what the disk can do.
  EXPECT_EQ(message_of([&] {
              broken.file.wait(broken.file.read({.slot = 0, .bytes = kPage}, broken.data.data()));
            }),
            "no error");
}

// Written behind, a slot is read by somebody who never waited for the write.
TEST(SlotFile, GivesNobodyASlotThatCouldNotBeWritten) {
  Broken broken([](const disk::Transfer& transfer) -> int64_t {
    return transfer.is_write && transfer.offset >= kPage ? -EIO : kCarryOut;
  });
  EXPECT_EQ(message_of([&] { broken.file.drain(); }), "no error");
  const auto ticket = broken.file.write({.slot = 1, .bytes = 8 * kPage}, broken.data.data());
  const std::string lost = "cannot write slot 1 at byte 0: Input/output error";
  EXPECT_THAT(broken.reading(), HasSubstr(lost));
  EXPECT_THAT(message_of([&] { broken.file.drain(); }), HasSubstr(lost));
  EXPECT_THAT(message_of([&] { broken.file.wait(ticket); }), HasSubstr(lost));
  EXPECT_THAT(broken.reading(), HasSubstr(lost));
  EXPECT_EQ(message_of([&] {
              broken.file.wait(broken.file.read({.slot = 0, .bytes = kPage}, broken.data.data()));
            }),
            "no error");
}

TEST(SlotFile, DoesTheRestOfAShortTransferAndTellsOfNone) {
  std::atomic<int> num_asked{0};
  Broken halves([&](const disk::Transfer& transfer) -> int64_t {
    ++num_asked;
    if (transfer.bytes < kPage) return kCarryOut;
    disk::Transfer half = transfer;
    half.bytes = kPage / 2;
    return disk::move_bytes(half);
  });
  std::fill_n(halves.data.data(), 8 * kPage, 'h');
  // Half a page is no direct transfer: on such a disk the whole is asked for again.
  EXPECT_EQ(halves.writing(), "no error");
  std::fill_n(halves.data.data(), 8 * kPage, '?');
  EXPECT_EQ(halves.reading(), "no error");
  EXPECT_EQ(std::string(halves.data.data(), 8 * kPage), std::string(8 * kPage, 'h'));
  const auto nothing = [](const disk::Transfer&) -> int64_t { return 0; };
  Broken none(nothing);
  EXPECT_THAT(none.reading(), HasSubstr("cannot read slot 1 at byte 0: the file ended early"));
  EXPECT_THAT(none.writing(), HasSubstr("cannot write slot 1 at byte 0: No space left on device"));
}

TEST(SlotFile, GoesThroughThePageCacheWhereDirectTransfersAreRefusedAndSaysSoOnce) {
  std::atomic<int> num_refused{0};
  Broken refusing([&](const disk::Transfer& transfer) -> int64_t {
    const int flags = ::fcntl(transfer.descriptor, F_GETFL);
    if ((flags & O_DIRECT) == 0) return kCarryOut;
    ++num_refused;
    return -EINVAL;
  });
  std::fill_n(refusing.data.data(), 8 * kPage, 'p');
  EXPECT_EQ(refusing.writing(), "no error");
  std::fill_n(refusing.data.data(), 8 * kPage, '?');
  EXPECT_EQ(refusing.reading(), "no error");
  EXPECT_EQ(std::string(refusing.data.data(), 8 * kPage), std::string(8 * kPage, 'p'));
  EXPECT_LE(num_refused, 2);  // those that were under way
  EXPECT_EQ(
      refusing.file.notice(),
      "offload: the file system of '" + refusing.folder.path() +
          "' refuses O_DIRECT: the page cache is used, which takes host memory and is slower");
}

TEST(SlotFile, TellsEveryWaiterWhenRequestsCanNoLongerBeMade) {
  Broken broken([](const disk::Transfer&) -> int64_t { fail("io_uring: gone"); });
  EXPECT_THAT(broken.reading(), HasSubstr("cannot read slot 1 at byte 0: io_uring: gone"));
  EXPECT_THAT(broken.writing(), HasSubstr("cannot write slot 1 at byte 0: io_uring: gone"));
}

// Sequences of reads and writes, waited for in any order, against the same in memory.
TEST(SlotFile, IsAsGoodAsMemory) {
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  const TemporaryFolder folder;
  for (int round = 0; round < 8; ++round) {
    std::vector<int64_t> sizes;
    for (int i = 0; i < 5; ++i) sizes.push_back(1 + below(9 * kPage));
    tiers::SlotFile file({.folder = folder.path(),
                          .slot_bytes = sizes,
                          .disk = {.block_size = kPage * (1 + below(3)),
                                   .queue_depth = 1 + below(5),
                                   .num_threads = 1 + below(3),
                                   .single_submit = below(2) == 0,
                                   .overlap_events = below(2) == 0},
                          .num_tickets = 6});
    std::vector<std::string> model;
    for (const int64_t size : sizes) model.emplace_back(static_cast<size_t>(size), '\0');
    struct Pending {
      tiers::SlotFile::Ticket ticket;
      tiers::SlotFile::Window window;
      disk::DirectBuffer buffer;
      std::string expected;  // of a read
      bool is_write;
    };
    std::vector<Pending> pending;
    const auto finish = [&](size_t index) {
      Pending done = std::move(pending[index]);
      pending.erase(pending.begin() + static_cast<int64_t>(index));
      file.wait(done.ticket);
      if (!done.is_write) {
        ASSERT_TRUE(std::string(done.buffer.data(), done.expected.size()) == done.expected);
      }
    };
    for (int i = 0; i < 60; ++i) {
      if (pending.size() == 6) finish(static_cast<size_t>(below(6)));
      const int slot = static_cast<int>(below(5));
      const int64_t size = sizes[static_cast<size_t>(slot)];
      const int64_t offset = below(size) / kPage * kPage;
      // A write ends with a page or with its slot: padding would reach into what follows.
      int64_t bytes = 1 + below(size - offset);
      const bool is_write = below(2) == 0;
      if (is_write) bytes = std::min(round_up(bytes, kPage), size - offset);
      const tiers::SlotFile::Window window{slot, offset, bytes};
      std::string& whole = model[static_cast<size_t>(slot)];
      disk::DirectBuffer buffer = buffer_of(bytes, static_cast<char>('a' + below(26)));
      char* const data = buffer.data();
      if (is_write)
        whole.replace(static_cast<size_t>(offset), static_cast<size_t>(bytes), data,
                      static_cast<size_t>(bytes));
      const auto ticket = is_write ? file.write(window, data) : file.read(window, data);
      pending.push_back({ticket, window, std::move(buffer),
                         whole.substr(static_cast<size_t>(offset), static_cast<size_t>(bytes)),
                         is_write});
    }
    while (!pending.empty()) finish(pending.size() - 1);
  }
}

}  // namespace
}  // namespace fullshard::testing
