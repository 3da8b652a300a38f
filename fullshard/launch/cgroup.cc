// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/cgroup.h"

#include <filesystem>
#include <fstream>
#include <string>

namespace fullshard::launch {
namespace {

namespace files = std::filesystem;
constexpr const char* kRoot = "/sys/fs/cgroup";

template <class Number>
void narrow(std::optional<Number>& limit, Number found) {
  if (!limit || found < *limit) limit = found;
}

void read_version_2(const files::path& folder, CgroupLimits& limits) {
  double quota = 0, period = 0;
  if (std::ifstream(folder / "cpu.max") >> quota >> period && period > 0) {  // not "max"
    narrow(limits.cores, quota / period);
  }
  int64_t bytes = 0;
  if (std::ifstream(folder / "memory.max") >> bytes) narrow(limits.memory_bytes, bytes);
}

void read_version_1_cpu(const files::path& folder, CgroupLimits& limits) {
  double quota = 0, period = 0;
  std::ifstream quota_file(folder / "cpu.cfs_quota_us"), period_file(folder / "cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) {
    narrow(limits.cores, quota / period);
  }
}

void read_version_1_memory(const files::path& folder, CgroupLimits& limits) {
  constexpr int64_t kUnlimited = int64_t{1} << 60;
  int64_t bytes = 0;
  if (std::ifstream(folder / "memory.limit_in_bytes") >> bytes && bytes < kUnlimited) {
    narrow(limits.memory_bytes, bytes);
  }
}

// The group and those above it, up to the controller's root.
template <class Read>
void climb(const files::path& root, files::path path, CgroupLimits& limits, const Read& read) {
  for (;; path = path.parent_path()) {
    read(root / path, limits);
    if (path.empty()) return;
  }
}

}  // namespace

CgroupLimits cgroup_limits() {
  CgroupLimits limits;
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {  // "4:memory:/a/b"; version 2: "0::/a/b"
    const size_t first = line.find(':'), second = line.find(":/", first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const files::path path = line.substr(second + 2);
    if (names == ",,") climb(kRoot, path, limits, read_version_2);
    if (names.find(",cpu,") != std::string::npos) {
      climb(files::path(kRoot) / "cpu", path, limits, read_version_1_cpu);
    }
    if (names.find(",memory,") != std::string::npos) {
      climb(files::path(kRoot) / "memory", path, limits, read_version_1_memory);
    }
  }
  return limits;
}

}  // namespace fullshard::launch
