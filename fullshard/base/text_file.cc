// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"

namespace fullshard::base {
namespace {

// A descriptor that is closed when it goes.
struct TextDescriptor {
  int number = -1;

  explicit TextDescriptor(int opened) : number(opened) {}
  ~TextDescriptor() {
    if (number >= 0) ::close(number);
  }
  TextDescriptor(const TextDescriptor&) = delete;
  TextDescriptor& operator=(const TextDescriptor&) = delete;
};

[[noreturn]] void refuse_text(const std::string& path, const std::string& why) {
  fail_as(ErrorKind::input, "{}: {}", printable(path), why);
}

[[noreturn]] void refuse_unreadable(const std::string& path) {
  refuse_text(path, fmt::format("cannot be read: {}", std::strerror(errno)));
}

void check_kind(const std::string& path, const struct stat& facts, TextFrom from,
                int64_t most_bytes) {
  if (S_ISDIR(facts.st_mode)) refuse_text(path, "is a folder, expected a file");
  if (from == TextFrom::files && !S_ISREG(facts.st_mode)) {
    refuse_text(path, "is not a regular file, which is expected here");
  }
  if (S_ISREG(facts.st_mode) && facts.st_size > most_bytes) {
    refuse_text(path, fmt::format("has {} bytes, more than the {} that such a file may have",
                                  facts.st_size, most_bytes));
  }
}

std::string read_to_end(int file, const std::string& path, int64_t most_bytes) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_unreadable(path);
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) > most_bytes) {
      refuse_text(path,
                  fmt::format("has more than the {} bytes that such a file may have", most_bytes));
    }
  }
}

}  // namespace

std::optional<std::string> find_text_file(const std::string& path, int64_t most_bytes,
                                          TextFrom from) {
  const int no_waiting = from == TextFrom::files ? O_NONBLOCK : 0;
  const TextDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | no_waiting));
  if (file.number < 0 && errno == ENOENT) return std::nullopt;
  struct stat facts = {};
  if (file.number < 0 || ::fstat(file.number, &facts) != 0) refuse_unreadable(path);
  check_kind(path, facts, from, most_bytes);
  return read_to_end(file.number, path, most_bytes);
}

std::string read_text_file(const std::string& path, int64_t most_bytes, TextFrom from) {
  auto text = find_text_file(path, most_bytes, from);
  if (text) return std::move(*text);
  errno = ENOENT;
  refuse_unreadable(path);
}

}  // namespace fullshard::base
