// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace fullshard::worker {

// Of `fullshard`, which starts ranks and lies beside this program.
std::string own_command();

}  // namespace fullshard::worker
