// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/text_stream.h"

#include <algorithm>

namespace fullshard::generation {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // a character that is not complete

std::vector<int32_t> part_of(const std::vector<int32_t>& tokens, size_t first, size_t last) {
  return {tokens.begin() + static_cast<std::ptrdiff_t>(first),
          tokens.begin() + static_cast<std::ptrdiff_t>(last)};
}

// How many last bytes of `text` could be the beginning of `stop`.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size) {
    if (text.ends_with(stop.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stop)
    : tokenizer_(tokenizer), stop_(stop) {}

// A token's text depends on the one before it (whether a space comes first), so two are decoded
// together and what the earlier one gives alone is taken away.
std::string TextStream::push(int64_t token) {
  tokens_.push_back(static_cast<int32_t>(token));
  if (has_stopped_) return {};
  const std::string before = tokenizer_.decode(part_of(tokens_, window_, decoded_));
  const std::string both = tokenizer_.decode(part_of(tokens_, window_, tokens_.size()));
  if (both.ends_with(kReplacement) || both.size() < before.size()) return {};
  window_ = decoded_;
  decoded_ = tokens_.size();
  take_piece(both.substr(before.size()));
  return give(certain_size());
}

std::string TextStream::finish() {
  if (!has_stopped_ && decoded_ < tokens_.size()) {
    const std::string before = tokenizer_.decode(part_of(tokens_, window_, decoded_));
    const std::string both = tokenizer_.decode(part_of(tokens_, window_, tokens_.size()));
    decoded_ = tokens_.size();
    take_piece(both.substr(std::min(before.size(), both.size())));
  }
  return give(text_.size());
}

void TextStream::take_piece(const std::string& piece) {
  const size_t size_before = text_.size();
  text_ += piece;
  size_t first = std::string::npos;
  for (const std::string& stop : stop_) {
    const size_t from = size_before - std::min(size_before, stop.size() - 1);
    first = std::min(first, text_.find(stop, from));
  }
  if (first == std::string::npos) return;
  has_stopped_ = true;
  text_.resize(first);
}

size_t TextStream::certain_size() const {
  if (has_stopped_) return text_.size();
  size_t held = 0;
  for (const std::string& stop : stop_) held = std::max(held, begun(text_, stop));
  return text_.size() - held;
}

std::string TextStream::give(size_t end) {
  if (end <= given_) return {};
  std::string piece = text_.substr(given_, end - given_);
  given_ = end;
  return piece;
}

}  // namespace fullshard::generation
