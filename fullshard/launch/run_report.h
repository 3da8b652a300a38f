// SPDX-License-Identifier: Apache-2.0
// What a report about a run needs, in one text: versions, the command, the effective configuration
// and the user's own file, and the last lines of every rank's log.
#pragma once

#include <string>

namespace fullshard::launch {

// `folder` is the run's --output (run.json, logs/) or a --log-dir. Throws Error of kind input when
// it holds neither.
std::string run_report(const std::string& folder);

}  // namespace fullshard::launch
