// SPDX-License-Identifier: Apache-2.0
// What lies in a folder that need not be there, and goes with it.
#pragma once

#include <string>
#include <vector>

namespace fullshard::base {

// Sorted, without "." and ".."; nothing where there is no such folder.
std::vector<std::string> names_in_folder(const std::string& path);

// The files in it and then the folder itself, which stays where it holds folders of its own.
void remove_flat_folder(const std::string& path) noexcept;

}  // namespace fullshard::base
