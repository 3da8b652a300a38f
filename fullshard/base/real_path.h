// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace fullshard::base {

// Whether the path is the folder or lies in it, as both are really named; false where one of them
// is not there.
bool lies_in(const std::string& path, const std::string& folder);

}  // namespace fullshard::base
