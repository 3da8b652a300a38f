// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/flushes.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <optional>

namespace fullshard::testing {
namespace {

std::mutex g_mutex;
std::optional<std::string> g_folder;
std::vector<std::string> g_events;

// Nothing for a path elsewhere.
std::optional<std::string> below(const std::string& path) {
  if (!g_folder || !path.starts_with(*g_folder)) return std::nullopt;
  return path == *g_folder ? "." : path.substr(g_folder->size() + 1);
}

void note_fsync(int descriptor) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  const std::lock_guard lock(g_mutex);
  if (length <= 0) return;
  if (const auto name = below(std::string(path, static_cast<size_t>(length)))) {
    g_events.push_back("fsync " + *name);
  }
}

void note_rename(const char* from, const char* to) {
  const std::lock_guard lock(g_mutex);
  const auto old_name = below(from), new_name = below(to);
  if (old_name && new_name) g_events.push_back("rename " + *old_name + " to " + *new_name);
}

}  // namespace

Flushes::Flushes(std::string folder) {
  const std::lock_guard lock(g_mutex);
  g_folder = std::move(folder);
  g_events.clear();
}

Flushes::~Flushes() {
  const std::lock_guard lock(g_mutex);
  g_folder.reset();
}

std::vector<std::string> Flushes::events() const {
  const std::lock_guard lock(g_mutex);
  return g_events;
}

}  // namespace fullshard::testing

extern "C" int fsync(int descriptor) {
  const auto status = static_cast<int>(::syscall(SYS_fsync, descriptor));
  fullshard::testing::note_fsync(descriptor);
  return status;
}

extern "C" int rename(const char* from, const char* to) noexcept {
  fullshard::testing::note_rename(from, to);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

extern "C" int renameat2(int old_folder, const char* from, int new_folder, const char* to,
                         unsigned flags) noexcept {
  fullshard::testing::note_rename(from, to);
  return static_cast<int>(::syscall(SYS_renameat2, old_folder, from, new_folder, to, flags));
}
