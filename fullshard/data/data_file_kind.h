// SPDX-License-Identifier: Apache-2.0
// What a path given as data is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fullshard::data {

enum class FileKind { tokens, text, json, table };

// Of one file. A token file with a header is known by it; the rest by their endings: .bin and
// .tokens; .txt, .text and .md; .jsonl, .ndjson and .json; .tsv. Others are an error that lists
// them.
FileKind kind_of(const std::string& path);

// The files themselves, and those of folders with an ending above, by name; folders in folders and
// hidden files are passed over. Errors, of the kind `input`: nothing there, nothing usable in a
// folder.
std::vector<std::string> list_files(const std::vector<std::string>& paths);

// Whether all are token files, or none is; a mixture is an error that names two.
bool are_token_files(const std::vector<std::string>& files);

std::string_view name_of(FileKind kind);

}  // namespace fullshard::data
