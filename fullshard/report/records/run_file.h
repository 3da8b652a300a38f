// SPDX-License-Identifier: Apache-2.0
// Files of a run's folder, by system calls: read at the end, written whole or not at all. Does not
// use std::filesystem, see tests/files.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/base/file_kind.h"

namespace fullshard::report {

// The last `bytes` of the file; empty if it does not exist.
std::string read_end_of_file(const std::string& path, int64_t bytes);
// Writes a file next to it, then renames that. Throws Error that names the cause (no room, no such
// folder); then the old content is unchanged.
void write_whole_file(const std::string& path, std::string_view text);

// Removes what write_whole_file() of a killed process has left of files with these names.
void remove_unfinished_files(const std::string& folder, const std::vector<std::string>& names);

// Creates the folder and those above it if they are missing. Throws Error otherwise.
void make_folders(const std::string& path);

// The time of the last write, in seconds since 1970; 0 if the file does not exist.
double last_write_time(const std::string& path);

}  // namespace fullshard::report
