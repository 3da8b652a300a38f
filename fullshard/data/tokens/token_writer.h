// SPDX-License-Identifier: Apache-2.0
// Writes token files once, from beginning to end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fullshard/data/tokens/atomic_file.h"
#include "fullshard/data/tokens/token_file.h"

namespace fullshard::data {

// Bytes per token that are enough for every id of a vocabulary: 2 or 4.
int token_width_for(int64_t vocabulary);

// Nothing exists at the file's path before finish(). A file without a header whose name does not
// tell that its tokens are uint32 gets a companion `<name>.json` that does.
class TokenWriter {
 public:
  TokenWriter(AtomicFile file, TokenFormat format, int width);

  void begin_document();
  void append(std::span<const int32_t> tokens);
  int64_t num_tokens() const { return layout_.num_tokens; }
  int64_t num_documents() const { return static_cast<int64_t>(documents_.size()); }

  void finish();
  // For an AtomicFile in memory, instead of finish(): the open file; `name` stands for it.
  TokenFile finish_in_memory();

 private:
  void write_ends();
  void write_companion();
  void flush();

  AtomicFile file_;
  TokenLayout layout_;
  std::string buffer_;
  std::vector<uint64_t> documents_;
};

}  // namespace fullshard::data
