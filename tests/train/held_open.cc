// SPDX-License-Identifier: Apache-2.0
#include "tests/train/held_open.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdarg>
#include <mutex>
#include <string_view>

namespace fullshard::testing {
namespace {

std::mutex g_held_mutex;
std::condition_variable g_changed;
std::string g_held_end;     // empty: nothing is held
bool g_is_waiting = false;  // whoever opens it

void wait_while_held(const char* path) {
  std::unique_lock lock(g_held_mutex);
  if (g_held_end.empty() || !std::string_view(path).ends_with(g_held_end)) return;
  g_is_waiting = true;
  g_changed.notify_all();
  g_changed.wait(lock, [] { return g_held_end.empty(); });
}

}  // namespace

HeldOpen::HeldOpen(std::string end_of_path) {
  const std::lock_guard lock(g_held_mutex);
  g_held_end = std::move(end_of_path);
  g_is_waiting = false;
}

HeldOpen::~HeldOpen() { release(); }

void HeldOpen::release() {
  const std::lock_guard lock(g_held_mutex);
  g_held_end.clear();
  g_changed.notify_all();
}

bool HeldOpen::wait_for_opener(std::chrono::seconds timeout) const {
  std::unique_lock lock(g_held_mutex);
  return g_changed.wait_for(lock, timeout, [] { return g_is_waiting; });
}

}  // namespace fullshard::testing

extern "C" int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const bool has_mode = (flags & (O_CREAT | O_TMPFILE)) != 0;
  const unsigned mode = has_mode ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  if ((flags & O_CREAT) != 0) fullshard::testing::wait_while_held(path);
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
