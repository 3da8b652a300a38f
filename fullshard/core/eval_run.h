// `fullshard eval` on one rank.
#pragma once

#include "fullshard/cli/run_arguments.h"

namespace fullshard {

int run_eval(const RunArguments& arguments);

}  // namespace fullshard
