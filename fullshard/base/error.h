// SPDX-License-Identifier: Apache-2.0
// Errors that a user or a machine can cause. A bug of ours is an assert, never an Error.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace fullshard {

// Decides the exit status of a program that ends with this error.
enum class ErrorKind {
  failed = 1,         // while running
  usage = 2,          // usage or configuration: nothing was started
  no_fit = 3,         // it would not fit: nothing was started
  input = 4,          // unreadable or invalid data, model or checkpoint
  interrupted = 130,  // by a signal
};

// The text reads "WHERE: WHAT; HINT": it names the thing, what was found and what to do.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, ErrorKind kind = ErrorKind::failed)
      : std::runtime_error(what), kind_(kind) {}

  ErrorKind kind() const { return kind_; }
  int exit_status() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

// check(width > 0, "layout: width is {}, expected a positive number", width);
template <class... Parts>
void check(bool condition, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!condition) [[unlikely]] {
    throw Error(fmt::format(format, std::forward<Parts>(parts)...));
  }
}

template <class... Parts>
[[noreturn]] void fail(fmt::format_string<Parts...> format, Parts&&... parts) {
  throw Error(fmt::format(format, std::forward<Parts>(parts)...));
}

template <class... Parts>
[[noreturn]] void fail_as(ErrorKind kind, fmt::format_string<Parts...> format, Parts&&... parts) {
  throw Error(fmt::format(format, std::forward<Parts>(parts)...), kind);
}

}  // namespace fullshard
