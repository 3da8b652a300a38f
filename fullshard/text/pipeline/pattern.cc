// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/pipeline/pattern.h"

#include "fullshard/base/error.h"

namespace fullshard::text {
namespace {

void append_rest(std::vector<Match>& found, uint32_t done, std::string_view text) {
  if (done < text.size()) found.push_back({done, static_cast<uint32_t>(text.size()), false});
}

class LiteralPattern : public Pattern {
 public:
  explicit LiteralPattern(std::string text) : text_(std::move(text)) {}

  void find(std::string_view text, std::vector<Match>& found) const override {
    uint32_t done = 0;
    for (size_t at = text.find(text_); at != std::string_view::npos; at = text.find(text_, done)) {
      append_match(found, done, static_cast<uint32_t>(at),
                   static_cast<uint32_t>(at + text_.size()));
    }
    append_rest(found, done, text);
  }

 private:
  std::string text_;
};

// " {2,}", which sentencepiece models contain.
class RunsOfSpaces : public Pattern {
 public:
  void find(std::string_view text, std::vector<Match>& found) const override {
    uint32_t done = 0;
    for (size_t at = text.find("  "); at != std::string_view::npos; at = text.find("  ", done)) {
      const size_t end = std::min(text.find_first_not_of(' ', at), text.size());
      append_match(found, done, static_cast<uint32_t>(at), static_cast<uint32_t>(end));
    }
    append_rest(found, done, text);
  }
};

}  // namespace

std::unique_ptr<Pattern> literal_pattern(std::string text) {
  if (text.empty()) fail_as(ErrorKind::input, "pattern: the string is empty, expected some text");
  return std::make_unique<LiteralPattern>(std::move(text));
}

std::unique_ptr<Pattern> regex_pattern(const std::string& expression) {
  if (expression == " {2,}") return std::make_unique<RunsOfSpaces>();
  if (auto known = known_pattern(expression)) return known;
  return pcre_pattern(expression);
}

}  // namespace fullshard::text
