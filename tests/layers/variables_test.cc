// SPDX-License-Identifier: Apache-2.0
// Variables of launchers are read in one file, base/launcher_environment. The others that ask the
// environment ask for what no launcher says, each for its own reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace fullshard::layers {
namespace {

TEST(Variables, OfLaunchersAreReadInOnePlace) {
  const auto folder = std::filesystem::path(FULLSHARD_SOURCE_ROOT) / "fullshard";
  std::vector<std::string> readers;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    if (text.str().find("getenv(") == std::string::npos) continue;
    readers.push_back(std::filesystem::relative(entry.path(), folder).string());
  }
  EXPECT_THAT(readers, ::testing::UnorderedElementsAre(
                           "base/hub_cache.cc",  // HF_*, XDG_CACHE_HOME, HOME
                           "base/launcher_environment.cc",
                           "comm/world/from_environment.cc",    // NCCL_*
                           "config/accelerate_environment.cc",  // ACCELERATE_*, FSDP_*: settings
                           "config/questionnaire.cc",           // HOME
                           "launch/devices.cc",                 // CUDA_VISIBLE_DEVICES
                           "launch/rank_environment.cc",        // OMP_NUM_THREADS
                           "train/run/kept_memory.cc"));        // GLIBC_TUNABLES, MALLOC_*
}

}  // namespace
}  // namespace fullshard::layers
