// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/unicode/cluster.h"

#include <cstdint>

#include "fullshard/text/unicode/unicode.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

enum class Hangul { none, leading, vowel, trailing };

// The role of a character in a syllable. Flags and Indic conjuncts are clusters too, but never
// small ones.
// small ones.
Hangul begins_as(uint32_t c) {
  if ((c >= 0x1100 && c <= 0x115F) || (c >= 0xA960 && c <= 0xA97C)) return Hangul::leading;
  if ((c >= 0x1160 && c <= 0x11A7) || (c >= 0xD7B0 && c <= 0xD7C6)) return Hangul::vowel;
  if ((c >= 0x11A8 && c <= 0x11FF) || (c >= 0xD7CB && c <= 0xD7FB)) return Hangul::trailing;
  return Hangul::none;
}

bool is_hangul_syllable(uint32_t c) { return c >= 0xAC00 && c <= 0xD7A3; }

bool is_one_syllable(uint32_t first, uint32_t second) {
  const Hangul next = begins_as(second);
  if (is_hangul_syllable(first)) {
    const bool open = (first - 0xAC00) % 28 == 0;
    return next == Hangul::trailing || (open && next == Hangul::vowel);
  }
  switch (begins_as(first)) {
    case Hangul::leading:
      return next == Hangul::leading || next == Hangul::vowel || is_hangul_syllable(second);
    case Hangul::vowel:
      return next == Hangul::vowel || next == Hangul::trailing;
    case Hangul::trailing:
      return next == Hangul::trailing;
    case Hangul::none:
      return false;
  }
  return false;
}

}  // namespace

size_t cluster_length(std::string_view text) {
  const Characters& characters = Characters::get();
  if (text.starts_with("\r\n")) return 2;
  size_t end = 0;
  uint32_t last = next_character(text, end);
  ClusterClass last_class = characters.cluster_class(last);
  bool pictographic = last_class == ClusterClass::pictographic;  // so far, with marks
  while (end < text.size() && last_class != ClusterClass::control) {
    size_t next_end = end;
    const uint32_t next = next_character(text, next_end);
    const ClusterClass next_class = characters.cluster_class(next);
    if (next_class == ClusterClass::control) break;
    const bool extends = next_class == ClusterClass::extend || next_class == ClusterClass::joiner;
    const bool joined = pictographic && last_class == ClusterClass::joiner &&
                        next_class == ClusterClass::pictographic;
    if (!extends && !joined && next_class != ClusterClass::spacing_mark &&
        last_class != ClusterClass::prepend && !is_one_syllable(last, next)) {
      break;
    }
    pictographic = next_class == ClusterClass::pictographic || (pictographic && extends);
    last = next;
    last_class = next_class;
    end = next_end;
  }
  return end;
}

}  // namespace fullshard::text
