// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fullshard::launch {
namespace {

namespace files = std::filesystem;

std::string model_in(const files::path& information) {
  std::ifstream file(information);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("Model:")) continue;
    const size_t begin = line.find_first_not_of(" \t", 6);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return {};
}

// In containers the files of the driver may be hidden while the devices are there.
size_t num_device_files() {
  std::error_code problem;
  size_t count = 0;
  for (const auto& entry : files::directory_iterator("/dev", problem)) {
    const std::string name = entry.path().filename();
    count +=
        name.starts_with("nvidia") && name.size() > 6 &&
        std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); });
  }
  return count;
}

}  // namespace

std::vector<std::string> find_gpus() {
  std::error_code problem;
  std::vector<std::string> names;
  for (const auto& entry : files::directory_iterator("/proc/driver/nvidia/gpus", problem)) {
    const std::string model = model_in(entry.path() / "information");
    names.push_back(model.empty() ? fmt::format("GPU {}", names.size()) : model);
  }
  if (const size_t devices = num_device_files(); devices > 0 && devices < names.size()) {
    names.resize(devices);  // the others belong to other containers
  } else {
    while (names.size() < devices) names.push_back(fmt::format("GPU {}", names.size()));
  }
  return names;
}

int num_visible_gpus() {
  const int present = static_cast<int>(find_gpus().size());
  const char* chosen = std::getenv("CUDA_VISIBLE_DEVICES");
  if (chosen == nullptr) return present;
  std::istringstream stream(chosen);
  int count = 0;
  for (std::string name; std::getline(stream, name, ',') && name != "-1";) count += !name.empty();
  return std::min(count, present);
}

}  // namespace fullshard::launch
