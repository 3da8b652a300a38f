// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/child_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/launch/late_lines.h"

namespace fullshard::launch {
namespace {

constexpr size_t kNumLastLines = 12;
constexpr size_t kLongestLine = 400;

// Returns the errno of a write that failed; 0: everything was written.
int write_all(int target, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(target, text.data(), text.size());
    if (wrote < 0 && errno != EINTR) return errno;  // the reader has gone, or the disk is full
    if (wrote > 0) text.remove_prefix(static_cast<size_t>(wrote));
  }
  return 0;
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Whether the line is one of a stack trace of libtorch, with symbols or without ("frame #3: name +
// 0x20 (0x7f… in libtorch.so)", "#3 name from file.cpp:7"), or its heading.
bool is_of_stack_trace(std::string_view line) {
  constexpr std::string_view kFrame = "frame ";
  if (line.starts_with("Exception raised from ") || line == "C++ CapturedTraceback:") return true;
  const bool is_named = line.starts_with(kFrame);
  if (is_named) line.remove_prefix(kFrame.size());
  if (line.size() < 3 || line[0] != '#' || !is_digit(line[1])) return false;
  return is_named || line.find(" from ") != std::string_view::npos;
}

bool says_nothing(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos || is_of_stack_trace(line);
}

int terminal(size_t stream) { return stream == 0 ? STDOUT_FILENO : STDERR_FILENO; }

}  // namespace

ChildOutput::ChildOutput(const ChildOutputOptions& options)
    : options_(options),
      shown_lines_{LinePrefix(options.prefix), LinePrefix(options.prefix)},
      kept_lines_{LinePrefix(""), LinePrefix("")} {
  if (options.log.empty()) return;
  log_ = ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_ < 0) {
    const int reason = errno;
    fail_as(ErrorKind::usage, "launch: cannot write the log '{}': {}", options.log,
            std::strerror(reason));
  }
}

ChildOutput::~ChildOutput() {
  if (log_ >= 0) ::close(log_);
}

void ChildOutput::take(size_t stream, std::string_view piece) {
  if (options_.shown && options_.prefix.empty()) show(stream, piece);
  if (options_.shown && !options_.prefix.empty()) {
    show(stream, shown_lines_[stream].take(piece));
  }
  keep(kept_lines_[stream].take(piece));
}

void ChildOutput::finish() {
  for (const size_t stream : {0, 1}) {
    if (options_.shown && !options_.prefix.empty()) {
      show(stream, shown_lines_[stream].rest());
    }
    keep(kept_lines_[stream].rest());
  }
}

void ChildOutput::accept_log() {
  if (options_.log_name.empty()) return;
  std::error_code ignored;  // lines go into the same file, whatever its name
  std::filesystem::rename(options_.log_name, options_.log_name + ".old", ignored);
  std::filesystem::rename(options_.log, options_.log_name, ignored);
  options_.log = std::exchange(options_.log_name, "");
}

void ChildOutput::show(size_t stream, std::string_view text) {
  if (!text.empty()) ++num_shown_;
  const int problem = write_all(terminal(stream), text);
  if (stream == 0 && problem != 0 && problem != EPIPE) lost_output_ = problem;
}

void ChildOutput::keep(const std::string& lines) {
  if (log_ >= 0) write_all(log_, lines);
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    const std::string line = lines.substr(begin, end - begin);
    begin = end + 1;
    if (options_.late_lines) options_.late_lines->hear(line);
    if (says_nothing(line)) continue;
    last_lines_.push_back(line.substr(0, kLongestLine));
    if (last_lines_.size() > kNumLastLines) last_lines_.pop_front();
  }
}

}  // namespace fullshard::launch
