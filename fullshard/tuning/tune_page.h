// SPDX-License-Identifier: Apache-2.0
// tune.html: the table of rungs and their speeds as bars, in the style of a run's report.
#pragma once

#include <string>

#include "fullshard/tuning/climb.h"

namespace fullshard::tuning {

// `title` names model and ranks. The page needs no network and no script.
std::string tune_page(const Climbed& climbed, const std::string& title);

}  // namespace fullshard::tuning
