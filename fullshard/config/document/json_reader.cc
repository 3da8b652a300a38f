// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string>

#include "fullshard/config/document/reader.h"

namespace fullshard::config {
namespace {

struct ForeignCharacter {
  uint32_t code;
  std::string_view name;
  char meant;  // 0: none
};

// Characters that keyboards and word processors insert in place of JSON's punctuation.
constexpr std::array kForeign = {
    ForeignCharacter{0x060C, "Arabic comma", ','},
    ForeignCharacter{0x061B, "Arabic semicolon", ','},
    ForeignCharacter{0x3001, "ideographic comma", ','},
    ForeignCharacter{0xFF0C, "fullwidth comma", ','},
    ForeignCharacter{0xFF1A, "fullwidth colon", ':'},
    ForeignCharacter{0x201C, "left double quotation mark", '"'},
    ForeignCharacter{0x201D, "right double quotation mark", '"'},
    ForeignCharacter{0x201E, "low double quotation mark", '"'},
    ForeignCharacter{0x2018, "left single quotation mark", '"'},
    ForeignCharacter{0x2019, "right single quotation mark", '"'},
    ForeignCharacter{0x00A0, "no-break space", ' '},
    ForeignCharacter{0x3000, "ideographic space", ' '},
    ForeignCharacter{0x200B, "zero width space", ' '},
    ForeignCharacter{0xFEFF, "byte order mark", ' '},
};

struct CodePoint {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not UTF-8
};

CodePoint decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return {};
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (length == 0 || first > 0xF4 || text.size() < length) return {};
  uint32_t code = first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0u) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  return {code, length};
}

void append_utf8(std::string& text, uint32_t code) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80u | ((code >> shift) & 0x3Fu));
  };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0u | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0u | (code >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0u | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

struct SyntaxError {};  // already reported

constexpr int kMostForeign = 100;  // look-alikes that are reported one by one

// The names of one map and their lines. Not a hash table: a file could make its entries collide.
using MemberLines = std::map<std::string, int>;

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& name, Problems& problems)
      : text_(text), name_(name), problems_(problems) {}

  ConfigNode read() {
    ConfigNode root = value(0);
    skip();
    if (at_ < text_.size()) stop("text after the end of the object", "remove it");
    return root;
  }

 private:
  void report(std::string message, std::string suggestion = "", int line = 0,
              std::string key = "") {
    problems_.errors.push_back({.file = name_,
                                .line = line > 0 ? line : line_,
                                .key = std::move(key),
                                .message = std::move(message),
                                .suggestion = std::move(suggestion)});
  }
  [[noreturn]] void stop(const std::string& message, std::string suggestion = "") {
    report(fmt::format("{} at column {}", message, column()), std::move(suggestion));
    throw SyntaxError{};
  }

  // In characters, as editors count. Each line is counted only once, however often this is called.
  size_t column() {
    if (counted_to_ < line_start_) {
      counted_to_ = line_start_;
      counted_ = 0;
    }
    for (; counted_to_ < at_; ++counted_to_) {
      if ((static_cast<unsigned char>(text_[counted_to_]) & 0xC0u) != 0x80) ++counted_;
    }
    return counted_ + 1;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void advance() {
    if (text_[at_++] == '\n') {
      ++line_;
      line_start_ = at_;
    }
  }
  bool take(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    advance();
    return true;
  }

  void skip() {
    for (;;) {
      const std::string_view rest = text_.substr(at_);
      if (rest.empty()) return;
      if (rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r' || rest[0] == '\n') {
        advance();
      } else if (rest[0] == '#' || rest.starts_with("//")) {
        while (at_ < text_.size() && peek() != '\n') advance();
      } else if (rest.starts_with("/*")) {
        skip_block();
      } else if (static_cast<unsigned char>(rest[0]) < 0x80 || !skip_foreign(' ')) {
        return;
      }
    }
  }
  void skip_block() {
    const size_t end = text_.find("*/", at_ + 2);
    if (end == std::string_view::npos) stop("unterminated comment", "close it with */");
    while (at_ < end + 2) advance();
  }

  // Skips a look-alike of `meant` and reports it, so that reading can continue.
  bool skip_foreign(char meant) {
    const CodePoint found = decode(text_.substr(at_));
    for (const ForeignCharacter& foreign : kForeign) {
      if (foreign.code != found.code || foreign.meant != meant) continue;
      if (++foreign_ > kMostForeign) stop(fmt::format("found {} again", here()));
      report(fmt::format("'{}' at column {} is U+{:04X} ({})", text_.substr(at_, found.bytes),
                         column(), found.code, foreign.name),
             meant == ' ' ? "write an ordinary space" : fmt::format("write {}", meant));
      at_ += found.bytes;
      return true;
    }
    return false;
  }

  // The next character, for messages.
  std::string here() const {
    if (at_ >= text_.size()) return "the end of the file";
    const CodePoint found = decode(text_.substr(at_));
    if (found.bytes == 0) return fmt::format("byte 0x{:02X}", static_cast<unsigned char>(peek()));
    if (found.code < 0x20 || found.code == 0x7F) return fmt::format("U+{:04X}", found.code);
    if (found.code < 0x80) return fmt::format("'{}'", peek());
    std::string_view name;
    for (const ForeignCharacter& foreign : kForeign) {
      if (foreign.code == found.code) name = foreign.name;
    }
    return fmt::format("'{}' (U+{:04X}{}{})", text_.substr(at_, found.bytes), found.code,
                       name.empty() ? "" : ", ", name);
  }

  bool is_foreign_quote() const {
    const CodePoint found = decode(text_.substr(at_));
    return std::any_of(kForeign.begin(), kForeign.end(), [&](const ForeignCharacter& foreign) {
      return foreign.code == found.code && foreign.meant == '"';
    });
  }

  ConfigNode value(int depth) {
    skip();
    if (depth > kMaxConfigDepth) {
      stop(fmt::format("nested more than {} deep", kMaxConfigDepth), "reduce the nesting");
    }
    if (++nodes_ > kMaxConfigNodes) stop(fmt::format("more than {} values", kMaxConfigNodes));
    const int line = line_;
    ConfigNode node = bare_value(depth);
    node.line = line;
    return node;
  }
  ConfigNode bare_value(int depth) {
    if (take('{')) return map(depth);
    if (take('[')) return list(depth);
    if (is_quote()) return ConfigNode::of_text(string());
    return word();
  }

  ConfigNode map(int depth) {
    ConfigNode node;
    node.kind = NodeKind::map;
    MemberLines names;
    for (;;) {
      skip();
      if (take('}')) return node;
      const int line = line_;
      std::string key = name();
      skip();
      if (!take(':') && !skip_foreign(':')) {
        stop(fmt::format("found {} after \"{}\", expected ':'", here(), key));
      }
      ConfigNode member = value(depth + 1);
      add_member(node, names, {std::move(key), line, std::move(member)});
      end_of_item('}');
    }
  }
  // A string in quotes, or a plain word before a colon.
  std::string name() {
    if (is_quote()) return string();
    const size_t end = std::min(text_.find_first_of(" \t\r\n:,[]{}\"'#", at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    const bool is_plain = std::all_of(word.begin(), word.end(), [](char c) {
      return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7F;
    });
    if (word.empty() || !is_plain) {
      stop(fmt::format("found {}, expected a key in double quotes or }}", here()),
           is_foreign_quote() ? "write \"" : "");
    }
    at_ = end;
    return std::string(word);
  }
  void add_member(ConfigNode& node, MemberLines& names, Member member) {
    const auto [first, is_new] = names.try_emplace(member.name, member.line);
    if (is_new) {
      node.members.push_back(std::move(member));
      return;
    }
    report(fmt::format("given twice, first on line {}", first->second), "keep one of them",
           member.line, member.name);
  }

  ConfigNode list(int depth) {
    ConfigNode node;
    node.kind = NodeKind::list;
    for (;;) {
      skip();
      if (take(']')) return node;
      node.items.push_back(value(depth + 1));
      end_of_item(']');
    }
  }
  // The end of a line separates items as a comma does.
  void end_of_item(char closing) {
    const int line = line_;
    skip();
    if (take(',') || skip_foreign(',') || peek() == closing) return;
    if (line_ > line && at_ < text_.size() && peek() != '}' && peek() != ']') return;
    stop(fmt::format("found {}, expected ',' or '{}'", here(), closing),
         peek() == '"' ? "a comma is missing before it" : "");
  }

  bool is_quote() const { return peek() == '"' || peek() == '\''; }

  std::string string() {
    if (text_.substr(at_).starts_with("'''")) {
      stop("multi-line string", "write it in double quotes with \\n");
    }
    const int line = line_;
    const char quote = peek();
    advance();
    std::string text;
    for (;;) {
      if (at_ >= text_.size() || peek() == '\n') {
        report("unterminated string",
               quote == '"' ? "close it with a double quote" : "close it with a single quote",
               line);
        throw SyntaxError{};
      }
      if (take(quote)) return text;
      if (take('\\')) {
        escape(text);
        continue;
      }
      const CodePoint found = decode(text_.substr(at_));
      if (found.bytes == 0) stop(fmt::format("{} is not UTF-8", here()), "save the file as UTF-8");
      if (found.code < 0x20 && found.code != '\t') {
        stop(fmt::format("control character {} inside a string", here()), "remove it");
      }
      text += text_.substr(at_, found.bytes);
      at_ += found.bytes;
    }
  }
  void escape(std::string& text) {
    static constexpr std::string_view kLetters = "\"'\\/bfnrt";
    static constexpr std::string_view kMeanings = "\"'\\/\b\f\n\r\t";
    const char letter = peek();
    if (const size_t i = kLetters.find(letter); i != std::string_view::npos && letter != '\0') {
      advance();
      text += kMeanings[i];
    } else if (take('u')) {
      append_utf8(text, unicode_escape());
    } else {
      stop(fmt::format("unknown escape \\{}", letter == '\0' ? ' ' : letter),
           "write \\\\ for a backslash");
    }
  }
  uint32_t unicode_escape() {
    const uint32_t high = four_digits();
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || !take('\\') || !take('u')) stop("incomplete surrogate pair");
    const uint32_t low = four_digits();
    if (low < 0xDC00 || low > 0xDFFF) stop("incomplete surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }
  uint32_t four_digits() {
    uint32_t code = 0;
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + std::min(at_ + 4, text_.size());
    const auto [stopped, error] = std::from_chars(begin, end, code, 16);
    if (error != std::errc() || stopped != begin + 4) stop("\\u needs four hexadecimal digits");
    at_ += 4;
    return code;
  }

  // The rest of the line, which hjson takes as a string without quotes; empty where it holds more
  // than a value: the next key, a comma or a comment. The search stops at the first of those: a
  // line may be the whole file.
  std::string_view rest_of_line() const {
    size_t end = at_;
    for (; end < text_.size() && text_[end] != '\n'; ++end) {
      const char c = text_[end];
      const char next = end + 1 < text_.size() ? text_[end + 1] : '\n';
      const bool is_blank = c == '\r' || c == '\t';
      const bool is_printable =
          static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7F;
      if (std::string_view(",:{}[]\"'#").find(c) != std::string_view::npos ||
          (c == '/' && (next == '/' || next == '*')) || !(is_printable || is_blank)) {
        return {};
      }
    }
    const std::string_view rest = text_.substr(at_, end - at_);
    const std::string_view text = rest.substr(0, rest.find_last_not_of(" \t\r") + 1);
    return text.find_first_of("\t\r") == std::string_view::npos ? text : std::string_view();
  }

  // A number, one of true, false, null, or a string without quotes that fills its line.
  ConfigNode word() {
    size_t end = at_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '+' ||
            text_[end] == '-' || text_[end] == '.' || text_[end] == '_')) {
      ++end;
    }
    const std::string_view word = text_.substr(at_, end - at_);
    const std::string_view line = rest_of_line();
    if (!line.empty() && ConfigNode::of_plain(line, false).kind == NodeKind::text &&
        !is_python_word(line)) {
      at_ += line.size();
      return ConfigNode::of_text(std::string(line));
    }
    if (word.empty()) {
      stop(fmt::format("found {}, expected a value", here()), is_foreign_quote() ? "write \"" : "");
    }
    ConfigNode node = ConfigNode::of_plain(word, false);
    const bool is_exact = word == "true" || word == "false" || word == "null" ||
                          node.kind == NodeKind::integer || node.kind == NodeKind::number;
    if (!is_exact) stop_at_word(word, node.kind);
    at_ = end;
    return node;
  }
  static bool is_python_word(std::string_view word) {
    return word == "None" || word == "Null" || word == "NULL";
  }
  [[noreturn]] void stop_at_word(std::string_view word, NodeKind kind) {
    if (kind == NodeKind::boolean) {
      stop(fmt::format("found {}, expected a value", word), "write true or false in lower case");
    }
    if (is_python_word(word)) {
      stop(fmt::format("found {}, expected a value", word), "write null");
    }
    stop(fmt::format("found {}, expected a value", word), "put strings in double quotes");
  }

  std::string_view text_;
  const std::string& name_;
  Problems& problems_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  size_t counted_to_ = 0;  // position up to which this line is counted
  size_t counted_ = 0;     // characters of this line up to there
  int line_ = 1;
  int nodes_ = 0;
  int foreign_ = 0;
};

}  // namespace

std::optional<ConfigNode> read_json(std::string_view text, const std::string& name,
                                    Problems& problems) {
  try {
    return JsonReader(text, name, problems).read();
  } catch (const SyntaxError&) {
    return std::nullopt;
  }
}

}  // namespace fullshard::config
