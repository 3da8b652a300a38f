// SPDX-License-Identifier: Apache-2.0
// The flags of a command that runs a model, for translating another program's arguments.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::cli {

// With the dashes in front, hidden ones too.
std::set<std::string, std::less<>> flag_names(RunKind kind);

}  // namespace fullshard::cli
