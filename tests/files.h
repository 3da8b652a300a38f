// SPDX-License-Identifier: Apache-2.0
// Files and folders of tests, by system calls. Not std::filesystem: where libstdc++ is linked
// statically beside a libtorch that carries another copy of it, its paths are two types in one.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace fullshard::testing {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;  // character by character, unoptimised, large files take seconds
  text << file.rdbuf();
  return text.str();
}

inline bool file_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

// Names without "." and "..".
inline std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) return names;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(stream);
  return names;
}

// A new private folder that goes, with the files in it, when the object does.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/fullshard-test-XXXXXX";
    if (const char* made = ::mkdtemp(name)) path_ = made;
  }
  ~TemporaryFolder() {
    for (const auto& name : entries_of(path_)) ::unlink(file(name).c_str());
    ::rmdir(path_.c_str());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace fullshard::testing
