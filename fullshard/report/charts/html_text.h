// SPDX-License-Identifier: Apache-2.0
// Text from outside, made safe for an HTML page. Logs, paths and values are treated as hostile.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fullshard::report {

// For content and for attributes in double quotes. Bytes that are not UTF-8 become U+FFFD; control
// characters other than tab and line break are removed, and so are the escape sequences that colour
// a terminal.
std::string escape_html(std::string_view text);

// At most this many bytes, cut between characters, with "…" where it was cut.
std::string shortened(std::string_view text, size_t bytes);

}  // namespace fullshard::report
