// SPDX-License-Identifier: Apache-2.0
// What went wrong, for people.
#pragma once

#include <exception>
#include <string>

namespace fullshard {

// The text of an exception, without the thirty frames that what() of libtorch's errors ends with.
std::string error_text(const std::exception& error);

}  // namespace fullshard
