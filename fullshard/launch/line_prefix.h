// SPDX-License-Identifier: Apache-2.0
// Puts a prefix before every line of a stream that arrives in pieces, so that the lines of several
// ranks never mix within one line.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace fullshard::launch {

class LinePrefix {
 public:
  explicit LinePrefix(std::string prefix) : prefix_(std::move(prefix)) {}

  // The complete lines so far, each with its prefix.
  std::string take(std::string_view piece);
  // What is left: a line without an end.
  std::string rest();

 private:
  std::string prefix_;
  std::string partial_;
};

}  // namespace fullshard::launch
