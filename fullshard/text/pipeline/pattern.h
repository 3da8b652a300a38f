// SPDX-License-Identifier: Apache-2.0
// The separators or replaced parts of a text: a string or a regular expression.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::text {

// A part of a text, in bytes.
struct Match {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool is_match = false;  // false: the part between matches
};

// Immutable, so thread-safe.
class Pattern {
 public:
  virtual ~Pattern() = default;
  // Appends matches and the parts between them: together the whole text, valid UTF-8, in order.
  virtual void find(std::string_view text, std::vector<Match>& found) const = 0;
};

std::unique_ptr<Pattern> literal_pattern(std::string text);

// Written by hand if the expression is a well-known one, otherwise by PCRE2. Throws Error of the
// kind input when the expression is not valid or this build has no PCRE2.
std::unique_ptr<Pattern> regex_pattern(const std::string& expression);

// Null if the expression is not well known.
std::unique_ptr<Pattern> known_pattern(std::string_view expression);
// In pcre_pattern.cc, or in no_regex.cc, which refuses.
std::unique_ptr<Pattern> pcre_pattern(const std::string& expression);

// GPT-2's expression, which the pre-tokenizer ByteLevel uses without naming it.
extern const std::string_view kGpt2Expression;
extern const std::string_view kQwen2Expression;

// Appends the text before a match, then the match; `done` is the end of the last one.
inline void append_match(std::vector<Match>& found, uint32_t& done, uint32_t begin, uint32_t end) {
  if (done < begin) found.push_back({done, begin, false});
  found.push_back({begin, end, true});
  done = end;
}

}  // namespace fullshard::text
