// SPDX-License-Identifier: Apache-2.0
// The files that torch.load, torch.distributed.checkpoint and DeepSpeed's zero_to_fp32 have read
// right (tests/fixtures/checkpoints/check_exports.py) are the files that are written.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/checkpoint/deepspeed_export.h"
#include "fullshard/formats/crc32.h"
#include "fullshard/stored/any_checkpoint.h"
#include "fullshard/stored/flat_checkpoint.h"
#include "fullshard/stored/fp32_export.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

std::string sum_of(const std::string& path) {
  const std::string bytes = read_file(path);
  return fmt::format("{:08x}", formats::crc32(0, bytes.data(), static_cast<int64_t>(bytes.size())));
}

class Exports : public ::testing::TestWithParam<std::string> {};

TEST_P(Exports, AreWhatTheRealProgramsRead) {
  const auto recorded =
      nlohmann::json::parse(read_file(checkpoint_fixture("exports.json")))[GetParam()];
  const stored::AnyCheckpoint checkpoint = stored::open_any(checkpoint_fixture(GetParam()));
  const CheckpointsFolder folder;
  const std::string tag = fmt::format("global_step{}", checkpoint.num_steps.value_or(0));
  stored::export_weights(checkpoint, folder / "bin");
  stored::export_weights(stored::flatten(checkpoint), folder / "dcp", {.safetensors = true});
  checkpoint::export_deepspeed(checkpoint, folder.path(), tag);
  EXPECT_EQ(sum_of(folder / "bin/pytorch_model.bin"),
            recorded["bin"]["pytorch_model.bin"].get<std::string>());
  EXPECT_EQ(sum_of(folder / "dcp/model.safetensors"),
            recorded["dcp"]["model.safetensors"].get<std::string>());
  ASSERT_EQ(recorded["deepspeed"].size(), 3u);
  for (const auto& [name, sum] : recorded["deepspeed"].items()) {
    EXPECT_EQ(sum_of(folder / name), sum.get<std::string>()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Exports,
                         ::testing::Values("zero2_bf16", "zero3", "dcp", "accelerate"),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace fullshard::testing
