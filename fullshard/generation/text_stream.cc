// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/text_stream.h"

#include <algorithm>

#include "fullshard/text/models/vocabulary.h"

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

bool is_byte_token(const Tokenizer& tokenizer, int64_t token) {
  const auto text = tokenizer.token_of(static_cast<int32_t>(token));
  return text && text::byte_of_token(*text).has_value();
}

// Whether one wrong byte makes every byte of its run a replacement, as byte fallback has it.
bool runs_fail_whole(const Tokenizer& tokenizer) {
  const auto first = tokenizer.id_of("<0x5B>"), wrong = tokenizer.id_of("<0x92>");
  if (!first || !wrong) return false;
  const std::string text = tokenizer.decode({*first, *wrong});
  return text.starts_with(kReplacement);
}

}  // namespace

std::vector<int64_t> stop_tokens_of(const Tokenizer* tokenizer,
                                    const std::vector<std::string>& stop) {
  std::vector<int64_t> tokens;
  if (tokenizer == nullptr) return tokens;
  for (const std::string& text : stop) {
    const auto token = tokenizer->id_of(text);
    if (token && tokenizer->is_special(*token)) tokens.push_back(*token);
  }
  return tokens;
}

TextStream::TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stop)
    : tokenizer_(tokenizer),
      stop_(stop),
      stop_tokens_(stop_tokens_of(&tokenizer, stop)),
      runs_fail_whole_(runs_fail_whole(tokenizer)) {}

// A token's text depends on the one before it (whether a space comes first), so two are decoded
// together and what the earlier one gives alone is taken away. Tokens that give no text are no
// neighbours: the one before them stays, or the next would be decoded as if the text began there.
std::string TextStream::push(int64_t token) {
  if (std::ranges::find(stop_tokens_, token) != stop_tokens_.end()) {
    std::string rest = finish();
    has_stopped_ = true;
    return rest;
  }
  tokens_.push_back(static_cast<int32_t>(token));
  if (has_stopped_) return {};
  const bool may_change = is_in_byte_run(token);
  if (may_change && stop_.empty()) return {};
  const std::string before = tokenizer_.decode(part_of(tokens_, window_, decoded_));
  const std::string both = tokenizer_.decode(part_of(tokens_, window_, tokens_.size()));
  if (both.ends_with(kReplacement) || both.size() < before.size()) return {};
  const std::string piece = both.substr(before.size());
  if (may_change && find_stop(piece) == std::string::npos) return {};
  if (!piece.empty()) window_ = decoded_;
  decoded_ = tokens_.size();
  take_piece(piece);
  return give(certain_size());
}

// Special tokens are skipped before bytes are put together, and so end no run.
bool TextStream::is_in_byte_run(int64_t token) {
  if (!runs_fail_whole_) return false;
  const bool goes_on = in_byte_run_ && tokenizer_.is_special(static_cast<int32_t>(token));
  in_byte_run_ = goes_on || is_byte_token(tokenizer_, token);
  return in_byte_run_;
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

// Where a stop text begins once `piece` is added; npos: there is none.
size_t TextStream::find_stop(const std::string& piece) const {
  size_t first = std::string::npos;
  for (const std::string& stop : stop_) {
    const size_t from = text_.size() - std::min(text_.size(), stop.size() - 1);
    const size_t found = (text_.substr(from) + piece).find(stop);
    if (found != std::string::npos) first = std::min(first, from + found);
  }
  return first;
}

void TextStream::take_piece(const std::string& piece) {
  const size_t first = find_stop(piece);
  text_ += piece;
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
