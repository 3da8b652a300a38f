// SPDX-License-Identifier: Apache-2.0
// CMake defines the words (cmake/BuildFacts.cmake).
#include "fullshard/cli/commands/version_text.h"

#include <fmt/format.h>

#include <string_view>

namespace fullshard::cli {
namespace {

std::string fact_line(std::string_view name, std::string_view value) {
  return fmt::format("{:<10} {}\n", name, value);
}

}  // namespace

std::string version_text() {
  constexpr bool kHasCuda = std::string_view(FULLSHARD_BUILD_CUDA) != "none";
  return fact_line("fullshard", FULLSHARD_BUILD_VERSION) +
         fact_line("commit", FULLSHARD_BUILD_COMMIT) +
         fact_line("compiler", FULLSHARD_BUILD_COMPILER) +
         fact_line("build", FULLSHARD_BUILD_TYPE) + fact_line("options", FULLSHARD_BUILD_OPTIONS) +
         fact_line("libtorch", FULLSHARD_BUILD_TORCH) + fact_line("CUDA", FULLSHARD_BUILD_CUDA) +
         fact_line("libraries", FULLSHARD_BUILD_LIBRARIES) +
         fact_line("backends", kHasCuda ? "shm, gloo, nccl, CUDA IPC" : "shm, gloo");
}

}  // namespace fullshard::cli
