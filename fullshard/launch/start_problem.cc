// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/start_problem.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fullshard/base/file_kind.h"

namespace fullshard::launch {
namespace {

// The command that runs a script of that name, as "python train.py"; empty: none is known.
std::string by_interpreter(const std::string& program) {
  for (const auto& [ending, interpreter] : {std::pair{".py", "python"}, {".sh", "sh"}}) {
    if (program.ends_with(ending)) return fmt::format("{} {}", interpreter, program);
  }
  return {};
}

std::string not_executable(const std::string& program) {
  const std::string script = by_interpreter(program);
  return fmt::format("'{}' is not executable; write {}chmod +x {}", program,
                     script.empty() ? "" : script + ", or make it so with ", program);
}

bool can_be_run(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

}  // namespace

std::string start_problem(const std::string& program, int reason) {
  const bool is_path = program.find('/') != std::string::npos;
  if (is_path && base::is_folder(program)) {
    return fmt::format("'{}' is a folder, not a program", program);
  }
  const bool is_here = base::is_file(program);
  if (reason == EACCES && is_path && is_here && !can_be_run(program)) {
    return not_executable(program);
  }
  if (reason == ENOENT && is_path && is_here) {
    return fmt::format("'{}' exists, but the interpreter that its first line names does not",
                       program);
  }
  if (is_path || (reason != ENOENT && reason != EACCES)) {
    return fmt::format("cannot start '{}': {}", program, std::strerror(reason));
  }
  if (!is_here) return fmt::format("'{}' is neither on PATH nor a file in this folder", program);
  const std::string script = by_interpreter(program);
  if (can_be_run(program)) {
    return fmt::format("'{0}' is not on PATH, but in this folder; write ./{0}", program);
  }
  return fmt::format(
      "'{0}' is not on PATH; it is in this folder, but not executable: write {1}chmod +x {0} and "
      "./{0}",
      program, script.empty() ? "" : script + ", or ");
}

}  // namespace fullshard::launch
