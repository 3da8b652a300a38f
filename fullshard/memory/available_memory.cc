// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/available_memory.h"

#include <fstream>
#include <string>

#include "fullshard/base/bytes.h"

namespace fullshard::memory {

int64_t available_bytes(c10::Device device) {
  if (!device.is_cpu()) return available_on_accelerator(device);
  std::ifstream file("/proc/meminfo");
  int64_t number = 0;
  for (std::string name, rest; file >> name >> number && std::getline(file, rest);) {
    if (name == "MemAvailable:") return number * kKiB;
  }
  return 0;
}

}  // namespace fullshard::memory
