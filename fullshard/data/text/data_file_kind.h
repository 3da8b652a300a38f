// SPDX-License-Identifier: Apache-2.0
// What a path given as data is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fullshard::data {

enum class FileKind { tokens, text, json, table, csv };

// The kind of one file. A token file with a header is recognised by it; the rest by their endings:
// .bin and .tokens; .txt, .text and .md; .jsonl, .ndjson and .json; .tsv; .csv. All but token files
// may also be compressed: .gz, .zst. Others are an error that lists these, or says how to convert
// the file.
FileKind kind_of(const std::string& path);

// Whether the ending is one of those above.
bool is_data_file(std::string_view path);

// The files themselves, those of data sets by their names on the hub (hub_dataset.h; `split` says
// which), and those in folders with an ending above, by name; folders in folders and hidden files
// are skipped. Errors, of the kind `input`: a path is missing, a folder has nothing usable.
// folder.
std::vector<std::string> list_files(const std::vector<std::string>& paths,
                                    std::string_view split = "train");

// Whether all are token files, or none is; a mixture is an error that names two of them.
bool are_token_files(const std::vector<std::string>& files);

std::string_view name_of(FileKind kind);

}  // namespace fullshard::data
