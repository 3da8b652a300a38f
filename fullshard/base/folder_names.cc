// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/folder_names.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>

namespace fullshard::base {

std::vector<std::string> names_in_folder(const std::string& path) {
  std::vector<std::string> names;
  DIR* stream = ::opendir(path.c_str());
  if (stream == nullptr) return names;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

void remove_flat_folder(const std::string& path) noexcept {
  for (const std::string& name : names_in_folder(path)) ::unlink((path + "/" + name).c_str());
  ::rmdir(path.c_str());
}

}  // namespace fullshard::base
