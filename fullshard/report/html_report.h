// SPDX-License-Identifier: Apache-2.0
// A run as one page that needs nothing else: no network and no other file; it is complete without
// its script.
#pragma once

#include <optional>
#include <string>

#include "fullshard/report/records/run_folder.h"

namespace fullshard::report {

// `now`, in seconds since 1970, tells a run that is still running from one that stopped writing;
// the page of a running one reloads itself. About 100 KB, and under 2 MB whatever the run wrote.
std::string html_report(const RunFolder& run, double now);

struct WrittenReport {
  std::string path{};
  bool is_live = false;  // the run is still running: the page will be out of date
  RunFolder run{};       // what it shows
};

// Reads the folder and writes the page to `output`, or to report.html in the folder.
WrittenReport write_html_report(const std::string& folder, const std::string& output = "");

// The page of a running or ending run, which must not fail because of it: returns what went wrong,
// or nothing.
std::optional<std::string> try_html_report(const std::string& folder);

}  // namespace fullshard::report
