// SPDX-License-Identifier: Apache-2.0
// Token files one after another, as one long row of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fullshard/data/tokens/token_file.h"

namespace fullshard::data {

// Files in the order given; a read may cross from one into the next. Thread-safe.
class TokenStream {
 public:
  // Tokens at or beyond `vocabulary` are errors of the kind `input` as soon as they are found: at
  // once if a header names the largest token, otherwise when they are read. 0: not checked.
  TokenStream(std::vector<TokenFile> files, int64_t vocabulary);

  int64_t size() const { return begins_.back(); }
  int64_t max_token() const;  // -1 when a file does not say
  // Reads tokens [first, first + out.size()), which must exist.
  void read(int64_t first, std::span<int64_t> out) const;
  // "train.bin", or "a.bin and 3 more".
  std::string name() const;

 private:
  size_t file_of(int64_t token) const;
  void check_vocabulary(const TokenFile& file, int64_t first,
                        std::span<const int64_t> tokens) const;

  std::vector<TokenFile> files_;
  std::vector<int64_t> begins_;  // of each file, and the end
  int64_t vocabulary_;
};

// "a" or "a and 2 more".
std::string name_of_files(const std::vector<std::string>& names);

}  // namespace fullshard::data
