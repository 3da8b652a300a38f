// Parts of files whose blocks have checksums, read by several threads into tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/checkpoint/block_writer.h"

namespace fullshard {

// Elements of dtype `stored`, one after the other from byte `offset` on, for `target` (1-D,
// contiguous, CPU; converted when its dtype is another).
struct WantedRange {
  int64_t offset = 0;
  at::ScalarType stored = at::kFloat;
  at::Tensor target;
  std::string what;  // for messages: "exp_avg of 'head.weight'"

  int64_t bytes() const;
};

struct WantedFile {
  std::string path;
  int64_t bytes = 0;  // its size
  const Checksums* checksums = nullptr;
  std::vector<WantedRange> ranges = {};  // must not overlap
};

// Reads the blocks that the ranges touch, each once, and checks them; beside the targets 4 MiB
// for each of four threads is held. Gives the bytes read. A block that is not what was written is
// an error of the kind input that names the file and what lies in the block.
int64_t read_block_files(std::vector<WantedFile> files);

}  // namespace fullshard
