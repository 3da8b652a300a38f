// SPDX-License-Identifier: Apache-2.0
// One rank's shared memory, cut into blocks that come and go. Blocks are taken by the owner only;
// the other ranks read them. Pages of freed blocks stay for the next block of that size.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fullshard::comm {

class ShmMapping;

class ShmArena {
 public:
  // A block that returns to its arena when dropped.
  using Block = std::shared_ptr<std::byte>;

  ShmArena(std::shared_ptr<ShmMapping> mapping, std::string owner);

  // Aligned to 64 bytes, large blocks to a page, those of two huge pages and more to a huge page.
  // Uninitialised.
  static Block allocate(const std::shared_ptr<ShmArena>& arena, int64_t bytes);

  int64_t bytes_in_use() const;
  // Up to where the arena was ever used: what it can cost at most.
  int64_t bytes_touched() const;

 private:
  int64_t take(int64_t bytes);
  // Once for each page: asking again would cost time whenever a block is used again.
  void use_huge_pages(int64_t offset, int64_t bytes);
  void give(int64_t offset);

  std::shared_ptr<ShmMapping> mapping_;
  std::string owner_;
  mutable std::mutex mutex_;
  std::map<int64_t, int64_t> used_;  // offset to bytes
  std::map<int64_t, int64_t> free_;  // the same, all below end_, no two adjacent
  std::vector<bool> has_huge_page_;  // or was refused it; by number of the huge page
  int64_t end_ = 0;
  int64_t in_use_ = 0;
};

}  // namespace fullshard::comm
