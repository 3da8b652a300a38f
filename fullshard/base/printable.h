// SPDX-License-Identifier: Apache-2.0
// Text from files, made fit for a terminal, a log or a message: names in a file are taken to be
// hostile.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace fullshard::base {

// Line breaks and tabs become \n, \r, \t; other control characters, NUL and bytes that are not
// UTF-8 become \xNN; the rest stays. Backslashes stay as well, so that printable text remains the
// same when it passes here twice. Longer than `max_bytes`, it is cut between characters and ends in
// "…".
std::string printable(std::string_view text, size_t max_bytes = std::numeric_limits<size_t>::max());

}  // namespace fullshard::base
