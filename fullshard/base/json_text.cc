// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/json_text.h"

#include <algorithm>
#include <forward_list>
#include <functional>
#include <iterator>
#include <span>
#include <vector>

#include "fullshard/base/printable.h"

namespace fullshard::base {
namespace {

// `byte` is counted from 1. Of a text of one line only the column is told.
[[noreturn]] void refuse_at(std::string_view text, size_t byte, const std::string& what) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const size_t line = 1 + static_cast<size_t>(std::ranges::count(before, '\n'));
  const size_t column = before.size() - line_start + 1;
  const bool is_one_line = text.find('\n') == std::string_view::npos;
  throw JsonError(fmt::format("{} at {}column {}", what,
                              is_one_line ? "" : fmt::format("line {}, ", line), column),
                  line, column);
}

// The end of the string that begins at `start`, its closing quote or the end of the text.
size_t end_of_string(std::string_view text, size_t start) {
  size_t at = start + 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at, text.size());
}

bool is_followed_by_colon(std::string_view text, size_t end) {
  const size_t next = text.find_first_not_of(" \t\r\n", end + 1);
  return next != std::string_view::npos && text[next] == ':';
}

// The arrays and objects around a place, with the keys that they have had so far.
class OpenObjects {
 public:
  explicit OpenObjects(std::string_view text) : text_(text) {}

  void enter(size_t at) {
    if (first_keys_.size() == kMostJsonDepth) {
      refuse_at(text_, at + 1, fmt::format("is nested more than {} deep", kMostJsonDepth));
    }
    first_keys_.push_back(keys_.size());
  }

  void leave() {
    if (first_keys_.empty()) return;
    const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(first_keys_.back());
    check_differ({first, keys_.end()});
    keys_.erase(first, keys_.end());
    first_keys_.pop_back();
  }

  // The string from `begin` to its closing quote at `end`.
  void add_key(size_t begin, size_t end) {
    std::string_view name = text_.substr(begin + 1, end - begin - 1);
    if (name.find('\\') != std::string_view::npos) {  // may be written in several ways
      const auto written = text_.substr(begin, end - begin + 1);
      const auto key = nlohmann::json::parse(written, nullptr, /*allow_exceptions=*/false);
      if (!key.is_string()) return;  // the parser will say so
      name = resolved_.emplace_front(key.get<std::string>());
    }
    keys_.push_back({std::hash<std::string_view>()(name), name, begin});
  }

 private:
  struct Key {
    size_t hash;
    std::string_view name;
    size_t at;
  };

  void check_differ(std::span<Key> keys) const {
    const auto is_before = [](const Key& left, const Key& right) {
      if (left.hash != right.hash) return left.hash < right.hash;
      return left.name != right.name ? left.name < right.name : left.at < right.at;
    };
    std::ranges::sort(keys, is_before);
    const auto twin = std::ranges::adjacent_find(keys, [](const Key& left, const Key& right) {
      return left.hash == right.hash && left.name == right.name;
    });
    if (twin == keys.end()) return;
    constexpr size_t kMostShown = 100;  // bytes
    refuse_at(text_, std::next(twin)->at + 1,
              fmt::format("has the key \"{}\" twice, again", printable(twin->name, kMostShown)));
  }

  std::string_view text_;
  std::vector<Key> keys_;                    // of all that are open, outermost first
  std::vector<size_t> first_keys_;           // of each, its place in keys_
  std::forward_list<std::string> resolved_;  // names that the text has with escapes
};

}  // namespace

void check_json_form(std::string_view text) {
  OpenObjects open(text);
  for (size_t at = text.find_first_of("\"[]{}"); at != std::string_view::npos;
       at = text.find_first_of("\"[]{}", at + 1)) {
    switch (text[at]) {
      case '"': {
        const size_t end = end_of_string(text, at);
        if (is_followed_by_colon(text, end)) open.add_key(at, end);
        at = end;
        break;
      }
      case ']':
      case '}':
        open.leave();
        break;
      default:
        open.enter(at);
    }
  }
}

void refuse_json(std::string_view text, size_t byte) { refuse_at(text, byte, "is not valid JSON"); }

void refuse_json_number() { throw JsonError("holds a number beyond the range of fp64", 1, 1); }

}  // namespace fullshard::base
