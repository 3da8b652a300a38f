// SPDX-License-Identifier: Apache-2.0
#include "tests/config/fixtures.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace fullshard::config {

FixtureFolder::FixtureFolder(const std::string& name) : before_(std::filesystem::current_path()) {
  std::filesystem::current_path(std::filesystem::path(FULLSHARD_SOURCE_DIR) /
                                "tests/fixtures/config" / name);
}

FixtureFolder::~FixtureFolder() { std::filesystem::current_path(before_); }

std::vector<std::string> FixtureFolder::files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(".")) {
    if (entry.path().extension() != ".expected") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace fullshard::config
