// SPDX-License-Identifier: Apache-2.0
// How the time of steps was spent, as stacked columns over the run and as a table.
#pragma once

#include <string>
#include <vector>

#include "fullshard/report/records/step_record.h"

namespace fullshard::report {

// Up to 48 columns, each the mean of the steps it stands for.
std::string phase_chart_html(const std::vector<StepRecord>& steps);

}  // namespace fullshard::report
