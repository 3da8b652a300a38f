// SPDX-License-Identifier: Apache-2.0
// How much the steps of a tokenizer may make of a text. Its file comes with a model and is not
// trusted: forty steps that each double a text would make it 2^40 times as long.
#pragma once

#include <algorithm>
#include <cstddef>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"

namespace fullshard::text {

class GrowthLimit {
 public:
  // Normal forms turn one byte into eleven, and bytes written as letters turn it into two.
  static constexpr size_t kMostTimes = 24;
  static constexpr size_t kAlwaysAllowed = size_t{kMiB};

  explicit GrowthLimit(size_t text_bytes = 0)
      : text_bytes_(text_bytes), most_(std::max(kAlwaysAllowed, kMostTimes * text_bytes)) {}

  void check_bytes(size_t made) const { check(made, "bytes"); }
  void check_tokens(size_t made) const { check(made, "tokens"); }

 private:
  void check(size_t made, const char* what) const {
    if (made <= most_) return;
    fail_as(
        ErrorKind::input,
        "makes more than {} {} of a text of {} bytes; a tokenizer may make {} times as many, or "
        "{}, whichever is more",
        most_, what, text_bytes_, kMostTimes, kAlwaysAllowed);
  }

  size_t text_bytes_;
  size_t most_;
};

}  // namespace fullshard::text
