// SPDX-License-Identifier: Apache-2.0
// A run as one JSON object, for programs: the numbers of the page.
#pragma once

#include <string>

#include "fullshard/report/records/run_folder.h"

namespace fullshard::report {

// On one line, without the line break; docs/report.md lists the keys. `page` is the path of the
// HTML page.
std::string run_summary_json(const RunFolder& run, const std::string& page, bool is_live);

}  // namespace fullshard::report
