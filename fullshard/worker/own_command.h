// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace fullshard::worker {

// The path of `fullshard`, which starts ranks and is next to this program.
std::string own_command();

}  // namespace fullshard::worker
