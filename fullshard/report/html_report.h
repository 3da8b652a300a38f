// SPDX-License-Identifier: Apache-2.0
// A run as one page that needs nothing else: no network, no other file, no script.
#pragma once

#include <optional>
#include <string>

#include "fullshard/report/records/run_folder.h"

namespace fullshard::report {

// `now`, in seconds since 1970, tells a run that goes on from one that fell silent; the page of the
// former reloads itself. Some 100 KB, and under 2 MB whatever the run wrote.
std::string html_report(const RunFolder& run, double now);

struct WrittenReport {
  std::string path{};
  bool is_live = false;  // the run goes on: the page will be out of date
  RunFolder run{};       // what it shows
};

// Reads the folder and writes the page, `output` or report.html in it.
WrittenReport write_html_report(const std::string& folder, const std::string& output = "");

// The page of a run that goes on or ends, for which it is no reason to fail: what went wrong, or
// nothing.
std::optional<std::string> try_html_report(const std::string& folder);

}  // namespace fullshard::report
