// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/run_report.h"

#include <sys/utsname.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/printable.h"
#include "fullshard/launch/machine_facts.h"

namespace fullshard::launch {
namespace {

namespace files = std::filesystem;

constexpr size_t kNumLines = 60;
constexpr size_t kLongestFile = 1 << 20;

std::string section(const std::string& title, const std::string& text) {
  return fmt::format("==== {} ====\n{}{}", title, text, text.ends_with('\n') ? "\n" : "\n\n");
}

std::string whole_file(const files::path& path) {
  if (!base::is_file(path)) return "not a regular file\n";
  std::ifstream file(path);
  std::string text(kLongestFile, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  std::string lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines += base::printable(line) + "\n";
  return lines;
}

std::string last_lines(const files::path& path) {
  if (!base::is_file(path)) return "not a regular file\n";
  std::ifstream file(path, std::ios::ate);
  const auto size = static_cast<int64_t>(file.tellg());
  file.seekg(std::max<int64_t>(0, size - static_cast<int64_t>(kLongestFile)));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > kNumLines) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) text += base::printable(line) + "\n";
  return text;
}

// "rank-10.log" comes after "rank-9.log".
std::vector<files::path> logs_in(const files::path& folder) {
  std::error_code problem;
  std::vector<files::path> logs;
  for (const auto& entry : files::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("rank-") && name.ends_with(".log")) logs.push_back(entry.path());
  }
  std::sort(logs.begin(), logs.end(), [](const files::path& left, const files::path& right) {
    const std::string a = left.filename(), b = right.filename();
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return logs;
}

std::string versions() {
  utsname name = {};
  ::uname(&name);
  std::string system;
  std::ifstream release("/etc/os-release");
  for (std::string line; std::getline(release, line);) {
    if (line.starts_with("PRETTY_NAME=")) system = line.substr(line.find('=') + 1);
  }
  return fmt::format("system {}\nkernel {} {} {}\ncompiler {}\n", system, name.sysname,
                     name.release, name.machine, __VERSION__);
}

}  // namespace

std::string run_report(const std::string& folder) {
  const files::path root = folder;
  std::error_code ignored;
  const bool has_settings = files::exists(root / "run.json", ignored);
  std::vector<files::path> logs = logs_in(root / "logs");
  if (logs.empty()) logs = logs_in(root);
  if (!has_settings && logs.empty()) {
    fail_as(
        ErrorKind::input,
        "doctor: '{}' holds neither run.json nor rank-N.log; give the --output folder of a run, "
        "or the --log-dir of launch",
        folder);
  }
  std::string text = section("versions", versions());
  text += section("machine", facts_text(machine_facts()));
  // It contains the command and the effective configuration.
  text += section("run.json", has_settings ? whole_file(root / "run.json") : "missing\n");
  for (const char* name : {"given_config.yaml", "given_config.json"}) {
    if (files::exists(root / name, ignored)) text += section(name, whole_file(root / name));
  }
  if (files::exists(root / "metrics.jsonl", ignored)) {
    text += section("metrics.jsonl, last lines", last_lines(root / "metrics.jsonl"));
  }
  for (const files::path& log : logs) {
    text += section(fmt::format("{}, last {} lines", log.filename().string(), kNumLines),
                    last_lines(log));
  }
  return text;
}

}  // namespace fullshard::launch
