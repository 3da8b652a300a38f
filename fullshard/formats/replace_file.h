// SPDX-License-Identifier: Apache-2.0
// Replaces a small file atomically.
#pragma once

#include <string>
#include <string_view>

namespace fullshard::formats {

// Written and flushed as PATH.part, which then takes the name of `path`, so that a reader sees
// either the old content or all of the new. The folder is flushed too: it lasts through a power
// cut.
void replace_file(const std::string& path, std::string_view text);

// Renames `part`, which is complete, and flushes the folder. A file of that name is replaced.
void rename_into_place(const std::string& part, const std::string& path);

}  // namespace fullshard::formats
