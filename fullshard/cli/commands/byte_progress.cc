// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/byte_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "fullshard/base/bytes.h"

namespace fullshard::cli {
namespace {

constexpr int64_t kWidth = 24;
constexpr auto kRedraw = std::chrono::milliseconds(100);

}  // namespace

ByteProgress::ByteProgress()
    : is_terminal_(::isatty(STDERR_FILENO) == 1), begin_(Clock::now()), drawn_(begin_) {}

ByteProgress::~ByteProgress() {
  if (is_drawn_) std::fputc('\n', stderr);
}

std::string ByteProgress::line(int64_t done, int64_t total, double seconds) {
  const double part = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  const auto filled = static_cast<int64_t>(part * kWidth);
  std::string text =
      fmt::format("[{:#<{}}{:.<{}}] {:3.0f} %, {} of {}", "", filled, "", kWidth - filled,
                  std::floor(part * 100), format_bytes(done), format_bytes(total));
  if (seconds <= 0 || done <= 0) return text;
  const double rate = static_cast<double>(done) / seconds;
  text += fmt::format(", {}/s", format_bytes(static_cast<int64_t>(rate)));
  if (done < total) {
    text += fmt::format(", {:.0f} s left", static_cast<double>(total - done) / rate);
  }
  return text;
}

void ByteProgress::update(int64_t done, int64_t total) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  if (is_terminal_) {
    if (done < total && now - drawn_ < kRedraw) return;
    fmt::print(stderr, "\r{}\x1b[K", line(done, total, seconds));
    std::fflush(stderr);
    is_drawn_ = true;
    drawn_ = now;
    return;
  }
  const int64_t tenths = total > 0 ? done * 10 / total : 10;
  if (tenths == tenths_) return;
  tenths_ = tenths;
  fmt::print(stderr, "{}\n", line(done, total, seconds));
}

}  // namespace fullshard::cli
