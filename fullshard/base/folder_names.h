// SPDX-License-Identifier: Apache-2.0
// What lies in a folder that need not be there.
#pragma once

#include <string>
#include <vector>

namespace fullshard::base {

// Sorted, without "." and ".."; nothing where there is no such folder.
std::vector<std::string> names_in_folder(const std::string& path);

}  // namespace fullshard::base
