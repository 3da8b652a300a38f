// SPDX-License-Identifier: Apache-2.0
// What every report page carries: its style, and a script for the values under the pointer. The
// page is whole without the script.
#pragma once

#include <string>
#include <string_view>

namespace fullshard::report {

std::string_view page_style();
std::string_view page_script();

// Of a Content-Security-Policy: nothing is fetched, and no script runs but that one, should any
// text ever get past escape_html.
std::string page_policy();

// A whole page around `body`, which is HTML; `title` is text from outside. A page of something that
// goes on reloads itself.
std::string whole_page(std::string_view title, std::string_view body, bool reloads);

}  // namespace fullshard::report
