// SPDX-License-Identifier: Apache-2.0
// Errors and warnings about a configuration. All of a file's are collected before any is reported.
#pragma once

#include <string>
#include <vector>

#include "fullshard/base/error.h"

namespace fullshard {

struct Problem {
  std::string file{};
  int line = 0;       // 0: none
  std::string key{};  // dotted; empty for the file as a whole
  std::string message{};
  std::string suggestion{};     // the nearest right key or value, or what to do; may be empty
  bool is_name = false;         // the suggestion is a key or value that may have been meant
  bool is_unknown_key = false;  // which may be allowed

  // "file:line: key: message; did you mean 'suggestion'?"
  std::string text() const;
  // {"file", "line", "key", "message", "suggestion"}
  std::string json() const;
};

struct Problems {
  std::vector<Problem> errors{};
  std::vector<Problem> warnings{};

  bool ok() const { return errors.empty(); }
  // "error: ..." and "warning: ..." lines, each ended by a line break, in the order of the lines.
  std::string text() const;
  // {"ok", "problems", "warnings"}
  std::string json() const;
  // Sorts by file and line; the order within a line stays.
  void sort();
  // Throws an Error of kind usage with all errors, one per line, if there are any. Where a key is
  // unknown, both texts end with how to allow such keys.
  void throw_if_any() const;
};

}  // namespace fullshard
