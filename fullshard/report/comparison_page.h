// SPDX-License-Identifier: Apache-2.0
// Several runs on one page: their curves in the same charts, their numbers next to each other, and
// the settings in which they differ.
#pragma once

#include <string>
#include <vector>

#include "fullshard/report/records/run_folder.h"

namespace fullshard::report {

// As many as there are colours that are easy to tell apart.
inline constexpr size_t kMostComparedRuns = 6;

// Takes two to kMostComparedRuns runs; `now` as in html_report().
std::string html_comparison(const std::vector<RunFolder>& runs, double now);

struct WrittenComparison {
  std::string path{};
  bool is_live = false;  // one of them is still running
  std::vector<RunFolder> runs{};
};

// Reads the folders and writes the page.
WrittenComparison write_html_comparison(const std::vector<std::string>& folders,
                                        const std::string& output);

// {"page", "live", "runs": [run_summary_json of each]}, on one line.
std::string comparison_json(const WrittenComparison& written);

}  // namespace fullshard::report
