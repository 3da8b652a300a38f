// SPDX-License-Identifier: Apache-2.0
// In processes of their own: what is told to the allocator stays told.
#include "fullshard/train/run/kept_memory.h"

// Where the allocator is a sanitizer's there is nothing to tell it.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace fullshard::train {
namespace {

constexpr size_t kBlockBytes = size_t{16} << 20;

void touch_and_free() {
  std::array<void*, 8> blocks{};
  for (void*& block : blocks) {
    block = std::malloc(kBlockBytes);
    std::memset(block, 1, kBlockBytes);
  }
  for (void* block : blocks) std::free(block);
}

// Pages that the kernel hands out in the second of two turns.
int64_t faults_of_second_turn() {
  touch_and_free();
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  touch_and_free();
  ::getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

[[noreturn]] void exit_by_faults(bool keeps) {
  if (keeps) keep_freed_memory();
  std::_Exit(faults_of_second_turn() < 100 ? 0 : 1);
}

TEST(KeptMemoryDeathTest, IsUsedAgainWithoutTheKernel) {
  EXPECT_EXIT(exit_by_faults(/*keeps=*/true), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_by_faults(/*keeps=*/false), ::testing::ExitedWithCode(1), "");
}

TEST(KeptMemoryDeathTest, IsTheEnvironmentsChoiceWhereItSays) {
  ::setenv("MALLOC_TRIM_THRESHOLD_", "131072", 1);
  EXPECT_EXIT(exit_by_faults(/*keeps=*/true), ::testing::ExitedWithCode(1), "");
  ::unsetenv("MALLOC_TRIM_THRESHOLD_");
}

}  // namespace
}  // namespace fullshard::train

#endif
