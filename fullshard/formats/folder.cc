// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "fullshard/formats/input_error.h"

namespace fullshard::formats {

std::vector<std::string> names_in(const std::string& folder) {
  DIR* stream = ::opendir(folder.c_str());
  check_system(stream != nullptr, "{}: cannot be read", folder);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(stream);
  std::ranges::sort(names);
  return names;
}

void make_folder_tree(const std::string& path) {
  for (size_t end = path.find('/', 1); true; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    check_system(::mkdir(part.c_str(), 0777) == 0 || errno == EEXIST, "{}: cannot be made", part);
    check_input(base::is_folder(part), "{}: is a file, expected a folder", part);
    if (end == std::string::npos) return;
  }
}

std::string folder_part(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string_view name_part(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

}  // namespace fullshard::formats
