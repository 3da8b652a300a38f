// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/unicode/unicode.h"

#include <vector>

#include "fullshard/text/unicode/unicode_data.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

std::vector<uint16_t> read_masks() {
  std::vector<uint16_t> classes;
  for (unicode::Numbers numbers(unicode::kClasses); !numbers.done();) {
    classes.push_back(static_cast<uint16_t>(numbers.next()));
  }
  std::vector<uint16_t> masks;
  masks.reserve(BlockTable<uint16_t>::kCharacters);
  for (unicode::Numbers numbers(unicode::kClassRuns); !numbers.done();) {
    const uint32_t length = numbers.next();
    masks.insert(masks.end(), length, classes[numbers.next()]);
  }
  return masks;
}

const BlockTable<int32_t>& lowercase_changes() {
  static const BlockTable<int32_t> table([] {
    std::vector<int32_t> changes(BlockTable<int32_t>::kCharacters, 0);
    uint32_t character = 0;
    for (unicode::Numbers numbers(unicode::kLowercase); !numbers.done();) {
      character += numbers.next();
      changes[character] = numbers.next_signed();
    }
    return changes;
  }());
  return table;
}

}  // namespace

Characters::Characters() : masks_(read_masks()) {}

const Characters& Characters::get() {
  static const Characters characters;
  return characters;
}

std::string lowercase(std::string_view text) {
  const auto& changes = lowercase_changes();
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char byte = text[i];
    if (static_cast<unsigned char>(byte) < 0x80) {
      result += byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte;
      ++i;
      continue;
    }
    const uint32_t character = next_character(text, i);
    if (character == 0x130) {
      result += "i\u0307";  // the only character with a lower-case form of two characters
    } else {
      append_utf8(result, character + static_cast<uint32_t>(changes[character]));
    }
  }
  return result;
}

}  // namespace fullshard::text
