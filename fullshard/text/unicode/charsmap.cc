// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/unicode/charsmap.h"

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

uint32_t load_uint32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return value;
}

// A unit of the double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t leaf_value(uint32_t unit) { return unit & 0x7FFFFFFFU; }
uint32_t label(uint32_t unit) { return unit & 0x800000FFU; }
uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200U) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view blob) {
  const size_t bytes = blob.size() < 4 ? 0 : load_uint32(blob, 0);
  if (blob.size() < 4 || bytes % 4 != 0 || bytes > blob.size() - 4) {
    fail_as(ErrorKind::input, "precompiled charsmap: {} bytes, too short for a trie of {} bytes",
            blob.size(), bytes);
  }
  for (size_t at = 4; at < 4 + bytes; at += 4) trie_.push_back(load_uint32(blob, at));
  replacements_ = blob.substr(4 + bytes);
  if (!is_valid_utf8(replacements_)) {
    fail_as(ErrorKind::input, "precompiled charsmap: the replacements are not valid UTF-8");
  }
}

std::optional<Charsmap::Rule> Charsmap::find(std::string_view text, bool stop_at_first) const {
  std::optional<Rule> rule;
  if (trie_.empty()) return rule;
  uint32_t node = offset(trie_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= trie_.size() || label(trie_[node]) != byte) break;
    const uint32_t unit = trie_[node];
    node ^= offset(unit);
    const bool whole =
        i + 1 == text.size() || (static_cast<unsigned char>(text[i + 1]) & 0xC0) != 0x80;
    if (!has_leaf(unit) || !whole) continue;  // never part of a character
    if (node >= trie_.size()) break;
    rule = {i + 1, replacement(leaf_value(trie_[node]))};
    if (stop_at_first) break;
  }
  return rule;
}

std::string_view Charsmap::replacement(uint32_t offset) const {
  const std::string_view all(replacements_);
  // Not from the middle of a character: the result must be valid UTF-8.
  if (offset >= all.size() || (static_cast<unsigned char>(all[offset]) & 0xC0) == 0x80) return {};
  return all.substr(offset, std::min(all.find('\0', offset), all.size()) - offset);
}

}  // namespace fullshard::text
