// SPDX-License-Identifier: Apache-2.0
// Text from outside, made fit for an HTML page. Logs, paths and values are taken to be hostile.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fullshard::report {

// For content and for attributes in double quotes. What is not UTF-8 becomes U+FFFD, control
// characters but tab and line break go, and so do the escape sequences that colour a terminal.
std::string escape_html(std::string_view text);

// At most so many bytes, cut between characters, with "…" where it was cut.
std::string shortened(std::string_view text, size_t bytes);

}  // namespace fullshard::report
