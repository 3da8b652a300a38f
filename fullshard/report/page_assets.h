// SPDX-License-Identifier: Apache-2.0
// What every report page has: its style, and a script for the values under the pointer. The page is
// complete without the script.
#pragma once

#include <string>
#include <string_view>

namespace fullshard::report {

std::string_view page_style();
std::string_view page_script();

// A Content-Security-Policy: nothing is fetched, and no script but that one runs, should any text
// ever get past escape_html.
std::string page_policy();

// A whole page around `body`, which is HTML; `title` is text from outside. The page of a running
// run reloads itself.
std::string whole_page(std::string_view title, std::string_view body, bool reloads);

}  // namespace fullshard::report
