// SPDX-License-Identifier: Apache-2.0
// `fullshard checkpoint to-fp32` by what it costs: it loads no libtorch and holds no tensor.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/formats/safetensors/safetensors_file.h"
#include "fullshard/formats/safetensors/safetensors_writer.h"
#include "fullshard/formats/torch/torch_source.h"
#include "fullshard/stored/manifest.h"
#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

constexpr int64_t kNumel = 16 << 20;  // 64 MiB in fp32
constexpr int64_t kBlock = 1 << 16;

float value_of(int64_t i) { return static_cast<float>(i % 40'009); }

std::vector<float> values_from(int64_t begin) {
  std::vector<float> values(kBlock);
  for (int64_t i = 0; i < kBlock; ++i) values[static_cast<size_t>(i)] = value_of(begin + i);
  return values;
}

// The largest resident memory of the program itself. A forked child begins with little of its own.
int64_t peak_of(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = -1;
  rusage usage = {};
  EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(status, 0);
  return usage.ru_maxrss * kKiB;
}

const std::string kProgram = FULLSHARD_BINARIES "/fullshard";

void expect_values(const TensorSource& source, const std::string& name) {
  ASSERT_NE(source.find(name), nullptr);
  EXPECT_EQ(source.find(name)->dtype, at::kFloat);
  std::vector<float> found(kBlock);
  for (const int64_t begin : {int64_t{0}, kNumel / 2 - 77, kNumel - kBlock}) {
    source.read(name, begin, ElementSpan(found.data(), kBlock, at::kFloat));
    EXPECT_EQ(found, values_from(begin)) << begin;
  }
}

// Half of the tensor in each of two files, as two ranks save it.
void write_own_checkpoint(const std::string& folder) {
  stored::Manifest manifest;
  manifest.num_ranks = manifest.num_shards = 2;
  manifest.strategy = "FULL_SHARD";
  manifest.rng = {"00", "00"};
  stored::ManifestTensor tensor{.names = {"large"}, .shape = {kNumel}};
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<float> values;
    for (int64_t i = 0; i < kNumel / 2; ++i) values.push_back(value_of(rank * kNumel / 2 + i));
    const std::string name = "weights-" + std::to_string(rank);
    const int64_t bytes = kNumel * 2;
    const auto sums = stored::write_block_files({{folder + "/" + name, {{values.data(), bytes}}}});
    manifest.files.push_back({.name = name, .rank = rank, .bytes = bytes, .checksums = sums[0]});
    tensor.weights.intervals.push_back({rank, rank * kNumel / 2, (rank + 1) * kNumel / 2, 0});
  }
  manifest.tensors.push_back(tensor);
  std::ofstream(folder + "/" + stored::kManifestName) << stored::manifest_text(manifest);
}

TEST(Fp32Command, HoldsNoTensorOfACheckpoint) {
  const launch::TemporaryFolder folder;
  const pid_t maker = ::fork();  // whose memory does not count
  if (maker == 0) {
    write_own_checkpoint(folder.path());
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(maker, &status, 0), maker);
  ASSERT_EQ(status, 0);
  for (const auto* name : {"a.bin", "a.safetensors"}) {
    const std::string out = folder / name;
    EXPECT_LE(peak_of({kProgram, "checkpoint", "to-fp32", folder.path(), out}), 64 * kMiB) << name;
  }
  expect_values(formats::TorchSource(folder / "a.bin"), "large");
  formats::TorchFile(folder / "a.bin").check_sums("file");
  expect_values(formats::SafetensorsFile(folder / "a.safetensors"), "large");
}

TEST(Fp32Command, HoldsNoTensorOfAFileThatItConverts) {
  const launch::TemporaryFolder folder;
  SafetensorsWriter writer(folder / "half.safetensors", {{"large", {kNumel}, at::kDouble}});
  for (int64_t begin = 0; begin < kNumel; begin += kBlock) {
    auto values = values_from(begin);
    writer.write_range("large", begin, ElementSpan(values.data(), kBlock, at::kFloat));
  }
  writer.finish();
  EXPECT_LE(peak_of({kProgram, "checkpoint", "to-fp32", folder / "half.safetensors",
                     folder / "a.safetensors"}),
            64 * kMiB);
  expect_values(formats::SafetensorsFile(folder / "a.safetensors"), "large");
}

TEST(Fp32Command, NeedsNoLibtorch) {
  const launch::Ended needed = launch::shell("ldd " + kProgram);
  EXPECT_EQ(needed.status, 0);
  EXPECT_THAT(needed.output, ::testing::Not(::testing::HasSubstr("torch")));
  EXPECT_THAT(needed.output, ::testing::Not(::testing::HasSubstr("libc10")));
}

}  // namespace
}  // namespace fullshard::cli
