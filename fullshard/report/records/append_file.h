// SPDX-License-Identifier: Apache-2.0
// A file that only grows, by whole entries: metrics.jsonl and the monitors' files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fullshard::report {

// For one thread.
class AppendFile {
 public:
  // Creates the file if it is missing. Throws Error of kind input when it cannot be opened.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes() const;

  // Keeps this many bytes from the start. Throws Error of kind input.
  void cut(int64_t bytes);
  // `text` is in the file when this returns, without a buffer in between. If there is no room,
  // returns the cause, and nothing of it is in the file.
  std::optional<std::string> append(std::string_view text);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace fullshard::report
