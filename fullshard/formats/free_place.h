// SPDX-License-Identifier: Apache-2.0
// The destination of a command's result: nothing is replaced unasked, and no empty folder is left.
#pragma once

#include <string>
#include <vector>

namespace fullshard::formats {

// An Error of kind usage where the path is a file, or a folder with anything in it but what a
// command that was killed left unfinished there. With `overwrites` (--overwrite) there is none.
void check_is_free(const std::string& path, bool overwrites);

// A folder and those above it, as far as they are missing. The destructor removes those that
// are still empty, because writing into them failed.
class NewFolders {
 public:
  explicit NewFolders(const std::string& path);
  ~NewFolders();
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;

  void make() const;

 private:
  std::string path_;
  std::vector<std::string> missing_;  // the outermost first
};

}  // namespace fullshard::formats
