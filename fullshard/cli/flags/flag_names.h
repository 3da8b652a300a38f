// SPDX-License-Identifier: Apache-2.0
// Which flags a command that runs a model has, for those that take another program's words.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::cli {

// With the dashes in front, hidden ones too.
std::set<std::string, std::less<>> flag_names(RunKind kind);

}  // namespace fullshard::cli
