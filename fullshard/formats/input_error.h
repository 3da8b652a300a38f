// check() for what a file holds: the error is of the kind `input`.
#pragma once

#include <utility>

#include "fullshard/base/error.h"

namespace fullshard {

template <class... Parts>
void check_input(bool condition, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!condition) [[unlikely]] {
    throw Error(fmt::format(format, std::forward<Parts>(parts)...), ErrorKind::input);
  }
}

}  // namespace fullshard
