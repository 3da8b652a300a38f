// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/memory_info.h"

#include <fstream>
#include <string>

#include "fullshard/base/bytes.h"

namespace fullshard::base {

MemoryInfo memory_info() {
  MemoryInfo info;
  std::ifstream file("/proc/meminfo");
  int64_t number = 0;
  for (std::string name, rest; file >> name >> number && std::getline(file, rest);) {
    if (name == "MemTotal:") info.total_bytes = number * kKiB;
    if (name == "MemAvailable:") info.available_bytes = number * kKiB;
  }
  return info;
}

}  // namespace fullshard::base
