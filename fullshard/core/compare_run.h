// `fullshard compare` on one rank.
#pragma once

#include "fullshard/cli/run_arguments.h"

namespace fullshard {

int run_compare(const RunArguments& arguments);

}  // namespace fullshard
