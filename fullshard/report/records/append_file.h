// SPDX-License-Identifier: Apache-2.0
// A file that only grows, whole entries at a time: what metrics.jsonl and the monitors are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fullshard::report {

// One thread.
class AppendFile {
 public:
  // Makes the file where it is missing. An Error of kind input when it cannot be opened.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes() const;

  // Keeps so many bytes from the start. An Error of kind input.
  void cut(int64_t bytes);
  // In the file when it returns, without a buffer in between. Where there is no room: the cause,
  // and nothing of it in the file.
  std::optional<std::string> append(std::string_view text);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace fullshard::report
