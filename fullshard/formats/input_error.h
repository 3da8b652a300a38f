// SPDX-License-Identifier: Apache-2.0
// check() for what a file holds: the error is of the kind `input`, and text from the file is made
// printable.
#pragma once

#include <cerrno>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/base/write_problem.h"

namespace fullshard::formats {

// An argument of a message, made printable: names come from files and may contain anything.
template <class Part>
decltype(auto) message_part(const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    return base::printable(part);
  } else {
    return part;
  }
}

template <class... Parts>
std::string input_message(fmt::string_view format, const Parts&... parts) {
  return fmt::format(fmt::runtime(format), message_part(parts)...);
}

template <class... Parts>
[[noreturn]] void fail_input(fmt::format_string<Parts...> format, Parts&&... parts) {
  throw Error(input_message(format, parts...), ErrorKind::input);
}

template <class... Parts>
void check_input(bool condition, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!condition) [[unlikely]] {
    throw Error(input_message(format, parts...), ErrorKind::input);
  }
}

// The same for a call to the system, whose reason is added:
//   check_system(::mkdir(path, 0777) == 0, "{}: cannot be made", path);  "…: Permission denied"
// If strerror(errno) were an argument, it might be evaluated before the call.
template <class... Parts>
void check_system(bool condition, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!condition) [[unlikely]] {
    const int reason = errno;
    throw Error(fmt::format("{}: {}", input_message(format, parts...), std::strerror(reason)),
                base::kind_of_write_problem(reason));
  }
}

}  // namespace fullshard::formats
