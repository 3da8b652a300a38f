// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/chat/template_tokens.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "fullshard/base/printable.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text::chat {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

bool is_space(char letter) { return std::string_view(" \t\r\n\f\v").find(letter) != kNowhere; }
bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool begins_name(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || letter == '_';
}

// Reads the words between the braces.
class WordReader {
 public:
  WordReader(std::string_view text, int64_t line) : text_(text), line_(line) {}

  std::vector<TemplateWord> read() {
    std::vector<TemplateWord> words;
    while (skip_space()) words.push_back(next());
    words.emplace_back();
    return words;
  }

 private:
  bool skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    return at_ < text_.size();
  }

  TemplateWord next() {
    const char first = text_[at_];
    if (first == '\'' || first == '"') return string(first);
    if (is_digit(first)) return number();
    if (begins_name(first)) {
      const size_t begin = at_;
      while (at_ < text_.size() && (begins_name(text_[at_]) || is_digit(text_[at_]))) ++at_;
      return {WordKind::name, std::string(text_.substr(begin, at_ - begin))};
    }
    return symbol();
  }

  TemplateWord string(char quote) {
    TemplateWord word{WordKind::string};
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        append_escaped(word.text);
      } else {
        word.text += text_[at_];
      }
    }
    if (at_ == text_.size()) refuse_template(line_, "a string has no end");
    ++at_;
    return word;
  }

  // Appends an escape after a backslash, as Python reads it; leaves at_ at its last letter.
  void append_escaped(std::string& result) {
    constexpr std::string_view kLetters = "nrtabfv\\'\"";
    constexpr std::string_view kMeanings = "\n\r\t\a\b\f\v\\'\"";
    const char letter = text_[at_];
    if (const size_t place = kLetters.find(letter); place != kNowhere) {
      result += kMeanings[place];
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      append_utf8(result, hexadecimal(letter == 'x' ? 2 : letter == 'u' ? 4 : 8));
    } else if (letter >= '0' && letter <= '7') {
      append_utf8(result, octal());
    } else if (letter == 'N') {
      refuse_template(line_, "the escape \\N is not supported; write the character itself");
    } else if (letter != '\n') {  // a line continues after it
      result += {'\\', letter};
    }
  }

  uint32_t hexadecimal(size_t num_digits) {
    const std::string_view digits = text_.substr(at_ + 1, num_digits);
    uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    const bool is_whole =
        error == std::errc() && end == digits.data() + num_digits && digits.size() == num_digits;
    const bool is_surrogate = value >= 0xD800 && value < 0xE000;
    if (!is_whole || is_surrogate || value > 0x10FFFF) {
      refuse_template(line_, "the escape \\{} is not a character",
                      base::printable(std::string(text_.substr(at_, num_digits + 1))));
    }
    at_ += num_digits;
    return value;
  }

  // Reads up to three digits.
  uint32_t octal() {
    const std::string_view digits = text_.substr(at_, 3);
    uint32_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
    at_ += static_cast<size_t>(result.ptr - digits.data()) - 1;
    return value;
  }

  TemplateWord number() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    const bool has_point = at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(text_[at_ + 1]);
    if (has_point) {
      for (++at_; at_ < text_.size() && is_digit(text_[at_]);) ++at_;
    }
    TemplateWord word{has_point ? WordKind::number : WordKind::integer,
                      std::string(text_.substr(begin, at_ - begin))};
    const char* const first = word.text.data();
    const char* const last = first + word.text.size();
    const auto result = has_point ? std::from_chars(first, last, word.number)
                                  : std::from_chars(first, last, word.integer);
    if (result.ec != std::errc()) refuse_template(line_, "number {} is out of range", word.text);
    return word;
  }

  TemplateWord symbol() {
    constexpr std::array<std::string_view, 6> kPairs = {"==", "!=", "<=", ">=", "//", "**"};
    for (const auto pair : kPairs) {
      if (!text_.substr(at_).starts_with(pair)) continue;
      at_ += pair.size();
      return {WordKind::symbol, std::string(pair)};
    }
    constexpr std::string_view kSingle = "+-*/%~()[]{}<>=.,:|";
    if (kSingle.find(text_[at_]) == kNowhere) {
      refuse_template(line_, "unexpected character '{}'",
                      base::printable(std::string(text_.substr(at_, 1))));
    }
    return {WordKind::symbol, std::string(1, text_[at_++])};
  }

  std::string_view text_;
  int64_t line_;
  size_t at_ = 0;
};

// The end of the {{ or {% at `from`, ignoring strings and a mapping's own braces.
size_t find_end(std::string_view text, size_t from, std::string_view closing) {
  char quote = 0;
  int num_open = 0;
  for (size_t at = from; at < text.size(); ++at) {
    const char letter = text[at];
    if (quote != 0) {
      at += static_cast<size_t>(letter == '\\');
      if (letter == quote) quote = 0;
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
    } else if (num_open == 0 && text.substr(at).starts_with(closing)) {
      return at;
    } else if (letter == '{') {
      ++num_open;
    } else if (letter == '}') {
      num_open = std::max(num_open - 1, 0);
    }
  }
  return kNowhere;
}

struct PartCutter {
  std::string_view text;
  std::vector<TemplatePart> parts{};
  size_t at = 0;
  bool trims_start = false;       // of the next text: -%} came before it
  bool drops_line_break = false;  // trim_blocks
  int64_t line = 1;               // at the place up to which lines are counted
  size_t counted = 0;

  // Places only increase, and no line break is counted twice.
  int64_t line_of(size_t place) {
    line += std::ranges::count(text.substr(counted, place - counted), '\n');
    counted = place;
    return line;
  }

  void cut() {
    while (at < text.size()) {
      const size_t open = next_opening();
      add_text(at, open);
      if (open == kNowhere) return;
      cut_tag(open);
    }
  }

  size_t next_opening() const {
    for (size_t place = at; (place = text.find('{', place)) != kNowhere; ++place) {
      if (place + 1 < text.size() && std::string_view("{%#").find(text[place + 1]) != kNowhere) {
        return place;
      }
    }
    return kNowhere;
  }

  // Adds the text before the tag at `open`, without the white space that the tag removes.
  void add_text(size_t begin, size_t open) {
    std::string piece(text.substr(begin, open == kNowhere ? kNowhere : open - begin));
    if (trims_start) {
      piece.erase(0, std::min(piece.find_first_not_of(" \t\r\n\f\v"), piece.size()));
    } else if (drops_line_break && piece.starts_with('\n')) {
      piece.erase(0, 1);
    }
    if (open != kNowhere) trim_before(piece, begin, open);
    if (!piece.empty()) parts.push_back({PartKind::text, piece, {}, line_of(begin)});
  }

  void trim_before(std::string& piece, size_t begin, size_t open) const {
    const char sign = open + 2 < text.size() ? text[open + 2] : ' ';
    if (sign == '-') {
      const size_t last = piece.find_last_not_of(" \t\r\n\f\v");
      piece.resize(last == kNowhere ? 0 : last + 1);
    } else if (text[open + 1] != '{' && sign != '+') {  // lstrip_blocks
      const size_t last = piece.find_last_not_of(" \t");
      const bool begins_line = last == kNowhere ? begin == 0 || text[begin - 1] == '\n' ||
                                                      (drops_line_break && text[begin] == '\n')
                                                : piece[last] == '\n';
      if (begins_line) piece.resize(last == kNowhere ? 0 : last + 1);
    }
  }

  void cut_tag(size_t open) {
    const char kind = text[open + 1];
    const std::string_view closing = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    const size_t begin = open + 2;
    const size_t end = kind == '#' ? text.find(closing, begin) : find_end(text, begin, closing);
    if (end == kNowhere) {
      refuse_template(line_of(open), "{} has no {}", text.substr(open, 2), closing);
    }
    std::string_view inside = text.substr(begin, end - begin);
    if (inside.starts_with('-') || inside.starts_with('+')) inside.remove_prefix(1);
    trims_start = inside.ends_with('-');
    if (trims_start) inside.remove_suffix(1);
    drops_line_break = kind != '{';
    at = end + 2;
    if (kind == '#') return;
    const int64_t number = line_of(open);
    parts.push_back({kind == '{' ? PartKind::expression : PartKind::statement,
                     {},
                     WordReader(inside, number).read(),
                     number});
  }
};

}  // namespace

std::vector<TemplatePart> template_parts(std::string_view text) {
  // Jinja drops one line break at the end.
  if (text.ends_with('\n')) text.remove_suffix(1);
  PartCutter cutter{text};
  cutter.cut();
  return std::move(cutter.parts);
}

}  // namespace fullshard::text::chat
