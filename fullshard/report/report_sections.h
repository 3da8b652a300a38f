// SPDX-License-Identifier: Apache-2.0
// The parts of the report page, in its order. Each returns a piece of HTML, empty when there is
// nothing to show.
#pragma once

#include <string>

#include "fullshard/report/records/run_folder.h"
#include "fullshard/report/records/run_totals.h"

namespace fullshard::report {

// The name, status and progress of the run, and why it failed.
std::string header_section(const RunFolder& run, const RunTotals& totals, double now);
std::string numbers_section(const RunFolder& run, const RunTotals& totals);
std::string warnings_section(const RunFolder& run);
std::string pictures_section(const RunFolder& run, const RunTotals& totals);
// Values that the user chose, then, folded, the defaults.
std::string configuration_section(const RunFolder& run);
// Command, versions, hosts, times.
std::string origin_section(const RunFolder& run);
std::string logs_section(const RunFolder& run);

std::string title_of(const RunFolder& run);

}  // namespace fullshard::report
