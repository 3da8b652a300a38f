// SPDX-License-Identifier: Apache-2.0
// What a path names. Not std::filesystem: where libstdc++ is linked statically beside a libtorch
// that carries another copy of it, its paths are two types in one.
#pragma once

#include <sys/stat.h>

#include <string>

namespace fullshard::base {

inline bool is_file(const std::string& path) {
  struct stat facts = {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
}

inline bool is_folder(const std::string& path) {
  struct stat facts = {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// A device, a pipe or a socket: moving a file there would take it from everybody.
inline bool is_special_file(const std::string& path) {
  struct stat facts = {};
  return ::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode);
}

}  // namespace fullshard::base
