// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/tokens/token_stream.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::data {

TokenStream::TokenStream(std::vector<TokenFile> files, int64_t vocabulary)
    : files_(std::move(files)), begins_{0}, vocabulary_(vocabulary) {
  for (const TokenFile& file : files_) begins_.push_back(begins_.back() + file.size());
  for (const TokenFile& file : files_) {
    if (vocabulary_ == 0 || file.layout().max_token < vocabulary_) continue;
    std::vector<int64_t> block(4096);
    for (int64_t first = 0; first < file.size(); first += std::ssize(block)) {
      block.resize(static_cast<size_t>(std::min(std::ssize(block), file.size() - first)));
      file.read(first, block);
      check_vocabulary(file, first, block);
    }
  }
}

int64_t TokenStream::max_token() const {
  int64_t most = 0;
  for (const TokenFile& file : files_) {
    if (file.layout().max_token == kUnknown) return kUnknown;
    most = std::max(most, file.layout().max_token);
  }
  return most;
}

size_t TokenStream::file_of(int64_t token) const {
  return static_cast<size_t>(std::ranges::upper_bound(begins_, token) - begins_.begin() - 1);
}

void TokenStream::read(int64_t first, std::span<int64_t> out) const {
  assert(first >= 0 && first + std::ssize(out) <= size());
  for (size_t i = file_of(first); !out.empty(); ++i) {
    const int64_t inside = first - begins_[i];
    const auto part =
        out.first(static_cast<size_t>(std::min(files_[i].size() - inside, std::ssize(out))));
    files_[i].read(inside, part);
    check_vocabulary(files_[i], inside, part);
    out = out.subspan(part.size());
    first += std::ssize(part);
  }
}

void TokenStream::check_vocabulary(const TokenFile& file, int64_t first,
                                   std::span<const int64_t> tokens) const {
  if (vocabulary_ == 0) return;
  const auto bad =
      std::ranges::find_if(tokens, [&](int64_t token) { return token >= vocabulary_; });
  if (bad == tokens.end()) return;
  const int64_t number = first + (bad - tokens.begin());
  fail_as(ErrorKind::input,
          "{}: token {} at byte {} (token number {}) is beyond the vocabulary of {}; the file was "
          "made with another tokenizer, or its tokens are not {}",
          file.name(), *bad, file.byte_of(number), number, vocabulary_, file.layout().dtype());
}

std::string TokenStream::name() const {
  std::vector<std::string> names;
  for (const TokenFile& file : files_) names.push_back(file.name());
  return name_of_files(names);
}

std::string name_of_files(const std::vector<std::string>& names) {
  if (names.size() == 1) return names[0];
  return fmt::format("{} and {} more", names.at(0), names.size() - 1);
}

}  // namespace fullshard::data
