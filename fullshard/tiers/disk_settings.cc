// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/disk_settings.h"

#include <fmt/format.h>

#include "fullshard/base/bytes.h"
#include "fullshard/disk/direct_buffer.h"

namespace fullshard::tiers {
namespace {

constexpr int64_t kMostBlockBytes = kGiB;  // io_uring counts the bytes of a request in 32 bits
constexpr int64_t kMostQueueDepth = 4096;
constexpr int64_t kMostDiskThreads = 64;

std::optional<DiskSettingsProblem> outside(const char* key, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return std::nullopt;
  return DiskSettingsProblem{key,
                             fmt::format("is {}, expected a number from 1 to {}", value, most)};
}

}  // namespace

std::optional<DiskSettingsProblem> problem_of(const DiskSettings& settings) {
  const int64_t block = settings.block_size;
  if (block < disk::kDirectAlign || block > kMostBlockBytes || block % disk::kDirectAlign != 0) {
    return DiskSettingsProblem{"block_size",
                               fmt::format("is {}, expected a multiple of {} up to {}", block,
                                           disk::kDirectAlign, kMostBlockBytes)};
  }
  if (auto depth = outside("queue_depth", settings.queue_depth, kMostQueueDepth)) return depth;
  return outside("intra_op_parallelism", settings.num_threads, kMostDiskThreads);
}

std::string aio_json(const DiskSettings& settings) {
  return fmt::format(
      R"({{"aio": {{"block_size": {}, "queue_depth": {}, "intra_op_parallelism": {}, )"
      R"("single_submit": {}, "overlap_events": {}}}}})",
      settings.block_size, settings.queue_depth, settings.num_threads, settings.single_submit,
      settings.overlap_events);
}

}  // namespace fullshard::tiers
