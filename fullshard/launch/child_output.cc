#include "fullshard/launch/child_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

constexpr size_t kNumLastLines = 12;
constexpr size_t kLongestLine = 400;

void write_all(int target, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(target, text.data(), text.size());
    if (wrote < 0 && errno != EINTR) return;  // nobody reads any more, or the disk is full
    if (wrote > 0) text.remove_prefix(static_cast<size_t>(wrote));
  }
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
    fail_as(ErrorKind::usage, "launch: cannot write the log '{}': {}", options.log,
            std::strerror(errno));
  }
}

ChildOutput::~ChildOutput() {
  if (log_ >= 0) ::close(log_);
}

void ChildOutput::take(size_t stream, std::string_view piece) {
  if (options_.shown && options_.prefix.empty()) write_all(terminal(stream), piece);
  if (options_.shown && !options_.prefix.empty()) {
    write_all(terminal(stream), shown_lines_[stream].take(piece));
  }
  keep(kept_lines_[stream].take(piece));
}

void ChildOutput::finish() {
  for (const size_t stream : {0, 1}) {
    if (options_.shown && !options_.prefix.empty()) {
      write_all(terminal(stream), shown_lines_[stream].rest());
    }
    keep(kept_lines_[stream].rest());
  }
}

void ChildOutput::keep(const std::string& lines) {
  if (log_ >= 0) write_all(log_, lines);
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    last_lines_.push_back(lines.substr(begin, std::min(end - begin, kLongestLine)));
    if (last_lines_.size() > kNumLastLines) last_lines_.pop_front();
    begin = end + 1;
  }
}

}  // namespace fullshard
