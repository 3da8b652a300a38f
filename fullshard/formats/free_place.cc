// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/free_place.h"

#include <unistd.h>

#include <algorithm>
#include <ranges>

#include "fullshard/base/folder_names.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::formats {

namespace {

// Leftovers of a command that was killed do not prevent the same command from running again.
bool is_unfinished(const std::string& name) { return name.ends_with(".part"); }

}  // namespace

void check_is_free(const std::string& path, bool overwrites) {
  const auto names = base::names_in_folder(path);
  const bool is_empty_folder = base::is_folder(path) && std::ranges::all_of(names, is_unfinished);
  if (overwrites || is_empty_folder || !base::is_there(path)) return;
  fail_as(ErrorKind::usage, "{}: exists{}; name another place, or add --overwrite",
          base::printable(path), base::is_folder(path) ? " and is not empty" : "");
}

NewFolders::NewFolders(const std::string& path) : path_(path) {
  for (size_t end = path.find('/', 1); true; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (!base::is_there(part)) missing_.push_back(part);
    if (end == std::string::npos) return;
  }
}

NewFolders::~NewFolders() {
  for (const auto& folder : std::ranges::reverse_view(missing_)) ::rmdir(folder.c_str());
}

void NewFolders::make() const { make_folder_tree(path_); }

}  // namespace fullshard::formats
