// SPDX-License-Identifier: Apache-2.0
// Files of a run's folder, by system calls: read at the end, written whole or not at all.
// Not std::filesystem, see tests/files.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/base/file_kind.h"

namespace fullshard::report {

// The last `bytes` of it; empty when it is not there.
std::string read_end_of_file(const std::string& path, int64_t bytes);
// A file beside it first, then one rename. An Error that names the cause (no room, no
// such folder); then the old content is still there.
void write_whole_file(const std::string& path, std::string_view text);

// What write_whole_file() of a process that was killed has left of a file with one of these names.
void remove_unfinished_files(const std::string& folder, const std::vector<std::string>& names);

// The folder and those above it, where they are not there yet. An Error otherwise.
void make_folders(const std::string& path);

// Seconds since 1970 when it was last written; 0 when it is not there.
double last_write_time(const std::string& path);

}  // namespace fullshard::report
