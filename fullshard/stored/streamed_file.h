// SPDX-License-Identifier: Apache-2.0
// A planned file of weights, written block by block, in any order and past the page cache, while
// its values are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/formats/tensor_source.h"
#include "fullshard/stored/blocks/direct_file.h"
#include "fullshard/stored/weights_layout.h"

namespace fullshard::stored {

inline constexpr int64_t kStreamBytes = int64_t{4} << 20;  // of one block

// The file is PATH.part until finish(), which flushes and renames it; the destructor removes what
// was not finished. Errors name the file.
class StreamedFile {
 public:
  StreamedFile(std::string path, WeightsLayout layout);
  ~StreamedFile();
  StreamedFile(const StreamedFile&) = delete;
  StreamedFile& operator=(const StreamedFile&) = delete;

  int64_t num_blocks() const;
  // Call once for every block, on any thread; each thread has its own buffer.
  void write_block(int64_t block, const TensorSource& source, disk::DirectBuffer& buffer);
  void finish();

 private:
  void fill(size_t part, int64_t begin, int64_t end, const TensorSource& source, char* target);
  void write_closing();

  std::string path_;
  std::string part_path_;
  WeightsLayout layout_;
  std::vector<std::vector<uint32_t>> sums_;  // of each part: one per block that it touches
  DirectOutput output_;
  bool is_finished_ = false;
};

}  // namespace fullshard::stored
