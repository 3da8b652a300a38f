// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_arena.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "expect_error.h"
#include "fullshard/base/bytes.h"
#include "fullshard/comm/shm/shm_mapping.h"

namespace fullshard::comm {
namespace {

std::shared_ptr<ShmArena> make_arena(int64_t bytes) {
  return std::make_shared<ShmArena>(ShmMapping::for_threads(bytes, PageSize::normal), "rank 3");
}

TEST(ShmArena, AlignsSmallBlocksToCacheLinesAndLargeOnesToPages) {
  const auto arena = make_arena(kMiB);
  const auto small = ShmArena::allocate(arena, 1);
  const auto second = ShmArena::allocate(arena, 1);
  const auto large = ShmArena::allocate(arena, 100'000);
  EXPECT_EQ(second.get() - small.get(), 64);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.get()) % 4096, 0);
  EXPECT_EQ(arena->bytes_in_use(), 64 + 64 + 102'400);
}

TEST(ShmArena, UsesFreedBlocksAgain) {
  const auto arena = make_arena(kMiB);
  auto first = ShmArena::allocate(arena, 100'000);
  const auto fence = ShmArena::allocate(arena, 64);
  const std::byte* place = first.get();
  const int64_t touched = arena->bytes_touched();
  for (int i = 0; i < 100; ++i) {
    first.reset();
    first = ShmArena::allocate(arena, 100'000 - i);
    EXPECT_EQ(first.get(), place);
  }
  EXPECT_EQ(arena->bytes_touched(), touched);
}

TEST(ShmArena, JoinsNeighbouringHoles) {
  const auto arena = make_arena(kMiB);
  std::vector<ShmArena::Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(ShmArena::allocate(arena, 128));
  const std::byte* begin = blocks[0].get();
  blocks[0].reset();
  blocks[2].reset();
  blocks[1].reset();
  EXPECT_EQ(ShmArena::allocate(arena, 384).get(), begin);
}

TEST(ShmArena, SaysHowMuchWasAskedForWhenThereIsNoMore) {
  const auto arena = make_arena(kMiB);
  const auto half = ShmArena::allocate(arena, 512 * kKiB);
  EXPECT_EQ(error_of([&] { ShmArena::allocate(arena, 768 * kKiB); }),
            "shm: rank 3 asks for 768 KiB of shared memory and already uses 512 KiB, which is more "
            "than the 1 MiB that this machine has for it; use more ranks on other hosts or smaller "
            "buffers");
}

TEST(ShmArena, BeginsBlocksOfHugePagesAtOneAndUsesTheRoomBefore) {
  const auto arena = std::make_shared<ShmArena>(ShmMapping::create(64 * kMiB, "rank 3"), "rank 3");
  const auto small = ShmArena::allocate(arena, 1);
  const auto huge = ShmArena::allocate(arena, 4 * kMiB + 1);
  const auto large = ShmArena::allocate(arena, kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(huge.get()) % (2 * kMiB), 0);
  EXPECT_EQ(huge.get() - small.get(), 2 * kMiB);
  EXPECT_EQ(large.get() - small.get(), 4 * kKiB);
  EXPECT_EQ(arena->bytes_in_use(), 64 + (4 * kMiB + 4 * kKiB) + kMiB);
}

int64_t bytes_of_file(const ShmMapping& mapping) {
  struct stat status = {};
  ::fstat(mapping.descriptor(), &status);
  return status.st_blocks * 512;
}

TEST(ShmMapping, HugePagesKeepValuesAndCostNoMoreThanTheRange) {
  const auto mapping = ShmMapping::create(16 * kMiB, "rank 0");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapping->base()) % (2 * kMiB), 0);
  mapping->base()[4 * kMiB + 5] = std::byte{42};
  // Two whole huge pages lie in it, at 2 and at 4 MiB; both may be refused.
  mapping->use_huge_pages(64 * kKiB, 7 * kMiB);
  EXPECT_LE(bytes_of_file(*mapping), 4 * kMiB);
  EXPECT_GE(bytes_of_file(*mapping), 2 * shm_page_bytes());
  EXPECT_EQ(mapping->base()[4 * kMiB + 5], std::byte{42});
  EXPECT_EQ(mapping->base()[2 * kMiB + 5], std::byte{0});
  const auto other = ShmMapping::adopt(ShmDescriptor(::dup(mapping->descriptor())), "rank 0");
  EXPECT_EQ(other->base()[4 * kMiB + 5], std::byte{42});
}

TEST(ShmMapping, GivesPagesBackAsZeros) {
  for (const bool process : {false, true}) {
    const auto mapping = process ? ShmMapping::create(kMiB, "rank 0")
                                 : ShmMapping::for_threads(kMiB, PageSize::normal);
    std::memset(mapping->base(), 7, 64 * kKiB);
    mapping->give_back(4 * kKiB, 8 * kKiB);
    EXPECT_EQ(mapping->base()[4 * kKiB - 1], std::byte{7});
    EXPECT_EQ(mapping->base()[4 * kKiB], std::byte{0});
    EXPECT_EQ(mapping->base()[12 * kKiB], std::byte{7});
  }
}

TEST(ShmMapping, IsSeenThroughItsDescriptorAndSealedAgainstShrinking) {
  const auto mapping = ShmMapping::create(kMiB, "rank 0");
  const auto other = ShmMapping::adopt(ShmDescriptor(::dup(mapping->descriptor())), "rank 0");
  EXPECT_EQ(other->bytes(), kMiB);
  mapping->base()[5] = std::byte{42};
  EXPECT_EQ(other->base()[5], std::byte{42});
  EXPECT_NE(::ftruncate(mapping->descriptor(), 0), 0);
}

}  // namespace
}  // namespace fullshard::comm
