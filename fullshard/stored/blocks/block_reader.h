// SPDX-License-Identifier: Apache-2.0
// Parts of files whose blocks have checksums, read into memory, several under way at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fullshard/formats/element_span.h"
#include "fullshard/stored/blocks/block_writer.h"

namespace fullshard::stored {

class BufferPool;

// Elements of dtype `stored`, one after the other from byte `offset` on, for `target` (converted
// when its dtype is another).
struct WantedRange {
  int64_t offset = 0;
  at::ScalarType stored = at::kFloat;
  ElementSpan target;
  std::string what;  // for messages: "exp_avg of 'head.weight'"
  // Takes the elements from `begin` on of a target that does not lie in the CPU's memory.
  std::function<void(int64_t begin, const ElementSpan& values)> put = {};

  int64_t bytes() const;
};

struct WantedFile {
  std::string path;
  int64_t bytes = 0;  // its size
  const Checksums* checksums = nullptr;
  std::vector<WantedRange> ranges = {};  // must not overlap
};

inline constexpr int64_t kReadBytes = 4 * kBlockBytes;  // of one call to the system

struct BlockReadOptions {
  int num_workers = 2;            // threads that sum and copy
  int depth = 3;                  // reads under way for each of them
  BufferPool* buffers = nullptr;  // of kReadBytes, kept for the next time
};

// Reads the blocks that the ranges touch, each once, and checks them; beside the targets 4 MiB
// for each read under way is held. Gives the bytes read. A block that is not what was written is
// an error of the kind input that names the file and what lies in the block.
int64_t read_block_files(std::vector<WantedFile> files, const BlockReadOptions& options = {});

}  // namespace fullshard::stored
