// SPDX-License-Identifier: Apache-2.0
// A timeline as chrome://tracing and Perfetto open it: JSON trace events, one track per stream.
#pragma once

#include <string>

#include "fullshard/simulation/replay.h"

namespace fullshard::simulation {

std::string trace_events(const Replay& replay);

}  // namespace fullshard::simulation
