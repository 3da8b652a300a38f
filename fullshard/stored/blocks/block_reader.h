// SPDX-License-Identifier: Apache-2.0
// Reads parts of files whose blocks have checksums into memory, several reads in flight at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fullshard/formats/element_span.h"
#include "fullshard/stored/blocks/block_writer.h"

namespace fullshard::stored {

class BufferPool;

// Contiguous elements of dtype `stored` from byte `offset` on, for `target` (converted if its dtype
// is another).
struct WantedRange {
  int64_t offset = 0;
  at::ScalarType stored = at::kFloat;
  ElementSpan target;
  std::string what;  // for messages: "exp_avg of 'head.weight'"
  // Takes the elements from `begin` on, for a target that is not in the CPU's memory.
  std::function<void(int64_t begin, const ElementSpan& values)> put = {};

  int64_t bytes() const;
};

struct WantedFile {
  std::string path;
  int64_t bytes = 0;  // its size
  const Checksums* checksums = nullptr;
  std::vector<WantedRange> ranges = {};  // must not overlap
};

inline constexpr int64_t kReadBytes = 4 * kBlockBytes;  // of one system call

struct BlockReadOptions {
  int num_workers = 2;            // threads that sum and copy
  int depth = 3;                  // reads under way for each of them
  BufferPool* buffers = nullptr;  // of kReadBytes, kept for reuse
};

// Reads the blocks that the ranges touch, each once, and checks them; in addition to the targets,
// 4 MiB for each read in flight is held. Returns the bytes read. A block whose checksum differs is
// an error of the kind input that names the file and what the block holds.
int64_t read_block_files(std::vector<WantedFile> files, const BlockReadOptions& options = {});

}  // namespace fullshard::stored
