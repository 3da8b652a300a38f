// SPDX-License-Identifier: Apache-2.0
// Why a program could not be started, and what to write instead.
#pragma once

#include <string>

namespace fullshard::launch {

// "'train.py' is not on PATH, but in this folder; write ./train.py". `reason` is the errno of its
// exec. Looks at files as they are now.
std::string start_problem(const std::string& program, int reason);

}  // namespace fullshard::launch
