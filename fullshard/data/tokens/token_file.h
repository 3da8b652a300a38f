// SPDX-License-Identifier: Apache-2.0
// The tokens of one file, mapped.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fullshard/data/tokens/mapped_file.h"
#include "fullshard/data/tokens/token_layout.h"

namespace fullshard::data {

// Has any of the layouts of token_layout.h; owns the mapping. Thread-safe.
class TokenFile {
 public:
  explicit TokenFile(const std::string& path, std::string_view dtype = {},
                     Access access = Access::random);
  explicit TokenFile(MappedFile file, std::string_view dtype = {});

  const std::string& name() const { return file_.name(); }
  const TokenLayout& layout() const { return layout_; }
  int64_t size() const { return layout_.num_tokens; }

  // Reads tokens [first, first + out.size()), which must exist.
  void read(int64_t first, std::span<int64_t> out) const;
  // The byte where token number `token` begins in the file.
  int64_t byte_of(int64_t token) const { return layout_.begin + token * layout_.width; }
  // The first token of each document; empty where the layout does not say.
  std::span<const uint64_t> documents() const;

 private:
  MappedFile file_;
  TokenLayout layout_;
};

}  // namespace fullshard::data
