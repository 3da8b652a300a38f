// Files written in large blocks by several threads, with a checksum of each block.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace fullshard {

inline constexpr int64_t kBlockBytes = int64_t{1} << 20;  // that one checksum covers
inline constexpr int64_t kPieceAlign = 4096;              // bytes; where pieces begin in a file

// Borrowed bytes; null stands for zeros.
struct ByteSpan {
  const void* data = nullptr;
  int64_t bytes = 0;
};

struct BlockFile {
  std::string path;
  std::vector<ByteSpan> content;  // one after the other

  int64_t bytes() const;
};

using Checksums = std::vector<uint32_t>;  // of a file's blocks; the last may be shorter

// Creates the files, writes them and flushes them to the device. Beside the content 4 MiB per
// thread is held. Gives each file's checksums; nothing when `stop` was set meanwhile.
std::vector<Checksums> write_block_files(const std::vector<BlockFile>& files,
                                         const std::atomic<bool>* stop = nullptr);

int64_t num_blocks(int64_t bytes);

}  // namespace fullshard
