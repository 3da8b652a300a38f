// SPDX-License-Identifier: Apache-2.0
// The contents of a folder. Not std::filesystem: where libstdc++ is linked statically next to a
// libtorch that carries another copy of it, its paths are two incompatible types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullshard/base/file_kind.h"

namespace fullshard::formats {

// Sorted, without "." and ".."; an error (kind input) when the folder cannot be read.
std::vector<std::string> names_in(const std::string& folder);

// The folder and those above it, as far as they are missing.
void make_folder_tree(const std::string& path);

// Everything before the last '/' of "runs/a/latest" and after it; "." when there is none.
std::string folder_part(const std::string& path);
std::string_view name_part(std::string_view path);

// Whether a name that another program wrote refers to a file of its folder and nothing outside it.
bool is_plain_name(std::string_view name);

}  // namespace fullshard::formats
