// SPDX-License-Identifier: Apache-2.0
// A small file that is there whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace fullshard::formats {

// Written and flushed as PATH.part, which then takes the name of `path`, so that whoever reads sees
// what was there before or all of this. The folder is flushed too: it lasts through a power cut.
void replace_file(const std::string& path, std::string_view text);

// Gives `part`, which is complete, its name and flushes the folder. What had that name is gone.
void rename_into_place(const std::string& part, const std::string& path);

}  // namespace fullshard::formats
