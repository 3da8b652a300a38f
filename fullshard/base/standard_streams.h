// SPDX-License-Identifier: Apache-2.0
// Standard input, output and error, which whoever started this process may have closed, or may
// close while it runs. A run must not be lost for that.
#pragma once

#include <string_view>

namespace fullshard::base {

// Where one of the three is closed, /dev/null is opened in its place: otherwise the next file that
// is opened would be taken for it. For the first lines of main().
void open_missing_streams();

// Text on standard error; that nobody reads it any more is no error.
void say(std::string_view text);

// Writes out what standard output has buffered. An Error when it cannot be written (no room); a
// reader that has gone away is none: it has what it wanted.
void flush_standard_output();

}  // namespace fullshard::base
