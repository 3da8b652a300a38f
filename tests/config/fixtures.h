// SPDX-License-Identifier: Apache-2.0
// The configuration files of tests/fixtures/config, read from their own folder so that messages
// hold plain names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fullshard::config {

// Makes a folder of the fixtures the current one while it lives.
class FixtureFolder {
 public:
  explicit FixtureFolder(const std::string& name);
  ~FixtureFolder();
  FixtureFolder(const FixtureFolder&) = delete;
  FixtureFolder& operator=(const FixtureFolder&) = delete;

  // The configurations in it, sorted.
  std::vector<std::string> files() const;

 private:
  std::filesystem::path before_;
};

std::string read_text(const std::string& path);

}  // namespace fullshard::config
