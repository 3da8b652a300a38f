#include "fullshard/formats/folder.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fullshard/formats/input_error.h"

namespace fullshard {

std::vector<std::string> names_in(const std::string& folder) {
  DIR* stream = ::opendir(folder.c_str());
  check_input(stream != nullptr, "{}: cannot be read: {}", folder, std::strerror(errno));
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(stream);
  std::ranges::sort(names);
  return names;
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

}  // namespace fullshard
