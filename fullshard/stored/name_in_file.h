// SPDX-License-Identifier: Apache-2.0
// The names of a module's parameters and buffers in files.
#pragma once

#include <string>
#include <vector>

namespace fullshard::stored {

struct NameInFile {
  std::string name;                 // empty: files do not carry it
  bool transposed = false;          // the file holds the transpose (2-D)
  std::vector<std::string> others;  // tried in order when `name` is absent
};

}  // namespace fullshard::stored
