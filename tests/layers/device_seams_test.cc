// SPDX-License-Identifier: Apache-2.0
// What reaches a GPU goes through few places, which check it: kernels through
// tensor/kernel_launch, events through memory/recorded_event. Nothing else names what lies behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace fullshard::layers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Seam {
  std::regex word;
  std::vector<std::string> places;  // paths begin with one of them
};

std::vector<Seam> seams() {
  return {
      // Streams of their own: collectives, and the capture of graphs.
      {std::regex("getCurrentCUDAStream|CUDAStreamGuard"),
       {"tensor/device_runtime_cuda.cc", "memory/device_graph_cuda.cc", "comm/gpu/"}},
      {std::regex("KERNEL_LAUNCH_CHECK|cudaGetLastError"),
       {"tensor/device_runtime_cuda.cc", "memory/pin_memory_cuda.cc", "comm/gpu/"}},
      {std::regex(R"(c10::Event\b|elapsedTime)"), {"memory/recorded_event.", "tensor/pretence.cc"}},
      {std::regex("cudaEvent"), {"comm/gpu/ipc_"}},
      {std::regex("of_emulation"), {"tensor/device_stream.h"}},
  };
}

bool lies_in(const std::string& path, const std::vector<std::string>& places) {
  return std::ranges::any_of(places,
                             [&](const std::string& place) { return path.starts_with(place); });
}

std::string without_comment(const std::string& line) { return line.substr(0, line.find("//")); }

// Lines of a source that name what they should go around.
std::vector<std::string> trespasses(const std::string& path, std::istream& source) {
  static const auto all = seams();
  std::vector<std::string> found;
  for (std::string line; std::getline(source, line);) {
    for (const auto& seam : all) {
      if (!lies_in(path, seam.places) && std::regex_search(without_comment(line), seam.word)) {
        found.push_back(path + ": " + line);
      }
    }
  }
  return found;
}

TEST(DeviceSeams, AreSeenInASource) {
  std::istringstream source(R"(  const auto stream = c10::cuda::getCurrentCUDAStream();
  // getCurrentCUDAStream is for others
  c10::Event event(device.type());
  c10::EventFlag flag;
)");
  EXPECT_THAT(
      trespasses("ops/norm_cuda.cc", source),
      ElementsAre("ops/norm_cuda.cc:   const auto stream = c10::cuda::getCurrentCUDAStream();",
                  "ops/norm_cuda.cc:   c10::Event event(device.type());"));
}

TEST(DeviceSeams, AreWhereTheyAreSaidToBe) {
  const auto folder = std::filesystem::path(FULLSHARD_SOURCE_ROOT) / "fullshard";
  int num_sources = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const auto extension = entry.path().extension();
    if (extension != ".cc" && extension != ".h" && extension != ".cu" && extension != ".cuh") {
      continue;
    }
    std::ifstream file(entry.path());
    EXPECT_THAT(trespasses(std::filesystem::relative(entry.path(), folder).string(), file),
                IsEmpty());
    ++num_sources;
  }
  EXPECT_GT(num_sources, 1000);
}

// A launcher takes a DeviceStream, which only a KernelLaunch gives out.
TEST(DeviceSeams, LaunchersTakeStreamsOfLaunches) {
  const auto folder = std::filesystem::path(FULLSHARD_SOURCE_ROOT) / "fullshard";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const bool is_runtime = entry.path().parent_path().filename() == "tensor";
    EXPECT_TRUE(is_runtime || text.str().find("cudaStream_t") == std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace fullshard::layers
