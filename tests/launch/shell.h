// SPDX-License-Identifier: Apache-2.0
// A command line as a user types it, with `fullshard` in PATH; both streams.
#pragma once

#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace fullshard::launch {

struct Ended {
  int status = 0;
  std::string output;
};

// Tests under nohup would pass the ignored SIGHUP on to runs that are meant to end by it.
inline Ended shell(const std::string& line) {
  const auto own_handler = std::signal(SIGHUP, SIG_DFL);
  std::FILE* pipe =
      ::popen(("PATH=" FULLSHARD_BINARIES ":$PATH; (" + line + ") 2>&1").c_str(), "r");
  std::signal(SIGHUP, own_handler);
  Ended ended;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    ended.output.append(buffer, got);
  }
  ended.status = WEXITSTATUS(::pclose(pipe));
  return ended;
}

// Precedes a command that the shell starts in the background, where it would ignore SIGINT.
inline const std::string kHearsInterrupts = "env --default-signal=INT ";

// A rank written for the shell reports that it looks for the others, as World does.
inline const std::string kBeginsToMeet = "printf b > /proc/self/fd/${FULLSHARD_MEETING%%:*}; ";

// An empty folder that is removed with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fullshard-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name) << text;
    return *this / name;
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(*this / name).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

}  // namespace fullshard::launch
