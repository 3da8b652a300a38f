// SPDX-License-Identifier: Apache-2.0
// JSON text from outside: files, lines of files. nlohmann::json copies, compares and writes values
// by recursion, so that text of 100,000 brackets would end the program, and of a key that is there
// twice it takes the last; here such text is refused before anything is made of it. Every JSON that
// others may have written is read through this, or through formats/safetensors/strict_json.h, which
// is stricter still.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fullshard/base/error.h"

namespace fullshard::base {

constexpr int kMostJsonDepth = 100;

// Of kind input. The text is a predicate, for the caller to put the file's name before it: "is not
// valid JSON at line 2, column 5".
class JsonError : public Error {
 public:
  JsonError(const std::string& what, size_t line, size_t column)
      : Error(what, ErrorKind::input), line_(line), column_(column) {}

  size_t line() const { return line_; }  // both counted from 1, columns in bytes
  size_t column() const { return column_; }

 private:
  size_t line_;
  size_t column_;
};

// Throws JsonError where arrays and objects nest deeper than kMostJsonDepth, and where an object
// has a key twice. The text need not be valid.
void check_json_form(std::string_view text);

// What the parser says, as a JsonError. `byte` is counted from 1, as the parser does.
[[noreturn]] void refuse_json(std::string_view text, size_t byte);
[[noreturn]] void refuse_json_number();

// The value of a text; JsonError when there is none.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  check_json_form(text);
  try {
    return Json::parse(text);
  } catch (const typename Json::parse_error& error) {
    refuse_json(text, error.byte);
  } catch (const typename Json::exception&) {
    refuse_json_number();
  }
}

}  // namespace fullshard::base
