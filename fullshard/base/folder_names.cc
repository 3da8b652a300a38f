// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/folder_names.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fullshard/base/error.h"
#include "fullshard/base/write_problem.h"

namespace fullshard::base {
namespace {

bool is_link(const std::string& path) {
  struct stat facts = {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode);
}

[[noreturn]] void refuse_name(const std::string& from, const std::string& to, int reason) {
  fail_as(kind_of_write_problem(reason), "{}: cannot be given the name {}: {}", from, to,
          std::strerror(reason));
}

void give_name(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) refuse_name(from, to, errno);
}

}  // namespace

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

bool is_there(const std::string& path) {
  struct stat facts = {};
  return ::lstat(path.c_str(), &facts) == 0;
}

void remove_flat_folder(const std::string& path) noexcept {
  if (is_link(path)) {
    ::unlink(path.c_str());
    return;
  }
  for (const std::string& name : names_in_folder(path)) ::unlink((path + "/" + name).c_str());
  ::rmdir(path.c_str());
}

void exchange_names(const std::string& part, const std::string& folder) {
  if (!is_there(folder)) return give_name(part, folder);
  if (::renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) return;
  const int reason = errno;
  const bool is_unknown = reason == EINVAL || reason == ENOSYS || reason == ENOTSUP;
  if (!is_unknown || !is_there(part)) refuse_name(part, folder, reason);
  // Not every file system can; the old one then has no name for a moment.
  const std::string old = part + ".old";
  remove_flat_folder(old);
  give_name(folder, old);
  give_name(part, folder);
  give_name(old, part);
}

}  // namespace fullshard::base
