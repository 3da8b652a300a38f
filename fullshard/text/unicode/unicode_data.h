// SPDX-License-Identifier: Apache-2.0
// The generated tables, as text: numbers in groups of five bits, the low group first, each group
// one of A-Z a-z 0-9 + -, whose sixth bit says that more follow. Signed numbers have the sign in
// their lowest bit (0, -1, 1, -2, …). Read once, by unicode.cc and normal_forms.cc.
#pragma once

#include <cstdint>
#include <string_view>

namespace fullshard::text::unicode {

extern const std::string_view kClasses;        // masks: nine properties, then a cluster class
extern const std::string_view kClassRuns;      // (length, index into kClasses) … from U+0000 on
extern const std::string_view kLowercase;      // (distance from the last, signed change) …
extern const std::string_view kCombiningRuns;  // (gap, length, combining class) …

// (distance from the last, 2 * parts + composes, signed distances from part to part) …
// Full decompositions, without Hangul. kCompatible only where it differs from kCanonical.
extern const std::string_view kCanonical;
extern const std::string_view kCompatible;

// Reads these numbers one after the other.
class Numbers {
 public:
  explicit Numbers(std::string_view text) : text_(text) {}

  bool done() const { return position_ == text_.size(); }
  uint32_t next();
  int32_t next_signed();

 private:
  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace fullshard::text::unicode
