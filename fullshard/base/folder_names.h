// SPDX-License-Identifier: Apache-2.0
// What lies in a folder that need not be there, and goes with it; folders that take another's name.
#pragma once

#include <string>
#include <vector>

namespace fullshard::base {

// Sorted, without "." and ".."; nothing where there is no such folder.
std::vector<std::string> names_in_folder(const std::string& path);

// Whatever it is; a link counts by itself, even where it leads nowhere.
bool is_there(const std::string& path);

// The files in it and then the folder itself, which stays where it holds folders of its own. Of a
// link only the link goes: what it leads to is somebody else's.
void remove_flat_folder(const std::string& path) noexcept;

// Gives `part` the name `folder`, and what had it, if anything, the name `part`: at no time neither
// is there, where the file system can. An Error when something cannot be renamed.
void exchange_names(const std::string& part, const std::string& folder);

}  // namespace fullshard::base
