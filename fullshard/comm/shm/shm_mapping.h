// SPDX-License-Identifier: Apache-2.0
// A large range of addresses whose pages come into being when they are touched. Between processes
// it is a memfd: it has no name in any file system, so nothing is left behind however its ranks
// end, and the size of /dev/shm does not matter. Between threads it is anonymous memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fullshard/comm/shm/shm_descriptor.h"

namespace fullshard::comm {

enum class PageSize { normal, huge };  // huge is a wish: see huge_pages.h

class ShmMapping {
 public:
  // Anonymous memory; asks for less when the machine refuses `bytes`.
  static std::shared_ptr<ShmMapping> for_threads(int64_t bytes, PageSize pages);
  // A new memfd, readable and writable by this user only; `owner` stands in its error messages.
  static std::shared_ptr<ShmMapping> create(int64_t bytes, const std::string& owner);
  // The memfd of another rank, in the size that it has.
  static std::shared_ptr<ShmMapping> adopt(ShmDescriptor descriptor, const std::string& owner);

  ShmMapping(std::byte* base, int64_t bytes, ShmDescriptor descriptor);
  ~ShmMapping();
  ShmMapping(const ShmMapping&) = delete;
  ShmMapping& operator=(const ShmMapping&) = delete;

  std::byte* base() const { return base_; }
  int64_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_.get(); }
  // The mapping stays; needed no more once every rank has its own.
  void close_descriptor() { descriptor_ = ShmDescriptor(); }

  bool contains(const void* begin, int64_t bytes) const;
  // Of a memfd, whose pages are normal else: huge ones for a range that will be used as a whole.
  void use_huge_pages(int64_t offset, int64_t bytes);
  // Gives whole pages back to the machine; they read as zeros afterwards.
  void give_back(int64_t offset, int64_t bytes);

 private:
  std::byte* base_;
  int64_t bytes_;
  ShmDescriptor descriptor_;
  bool is_memfd_;
};

// Addresses that one rank's memory may take: the machine's memory, less where many ranks would
// together exceed what a process can address.
int64_t shm_arena_bytes(int num_ranks);
int64_t shm_page_bytes();

}  // namespace fullshard::comm
