// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/tokens/token_file.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace fullshard::data {

TokenFile::TokenFile(const std::string& path, std::string_view dtype, Access access)
    : TokenFile(MappedFile(path, access), dtype) {}

TokenFile::TokenFile(MappedFile file, std::string_view dtype)
    : file_(std::move(file)), layout_(read_layout(file_.name(), file_.bytes(), dtype)) {}

void TokenFile::read(int64_t first, std::span<int64_t> out) const {
  assert(first >= 0 && first + static_cast<int64_t>(out.size()) <= size());
  // Mappings begin at a page and headers are multiples of 8, so tokens are aligned.
  const char* source = file_.bytes().data() + byte_of(first);
  if (layout_.width == 2) {
    std::copy_n(reinterpret_cast<const uint16_t*>(source), out.size(), out.begin());
  } else {
    std::copy_n(reinterpret_cast<const uint32_t*>(source), out.size(), out.begin());
  }
}

std::span<const uint64_t> TokenFile::documents() const {
  if (layout_.num_documents == kUnknown) return {};
  return {reinterpret_cast<const uint64_t*>(file_.bytes().data() + layout_.documents_begin),
          static_cast<size_t>(layout_.num_documents)};
}

}  // namespace fullshard::data
