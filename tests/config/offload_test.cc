// SPDX-License-Identifier: Apache-2.0
// Offload settings of files and flags as tiers/ takes them, and refusals at their keys.
#include "fullshard/config/offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/config/plan.h"

namespace fullshard::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> offload_errors(const std::string& text, std::vector<FlagValue> flags = {},
                                        std::optional<std::string> device = "cpu") {
  std::vector<std::string> lines;
  const auto reading =
      read_plan(text, "f", {.flags = std::move(flags), .device = std::move(device)});
  for (const Problem& problem : reading.problems.errors) lines.push_back(problem.text());
  return lines;
}
tiers::TierOptions offload_in(const std::string& text, std::vector<FlagValue> flags = {}) {
  const auto reading = read_plan(text, "f", {.flags = std::move(flags), .device = "cpu"});
  EXPECT_EQ(reading.problems.errors.size(), 0u)
      << (reading.problems.errors.empty() ? "" : reading.problems.errors[0].text());
  return offload_of(reading.plan);
}
std::string zero3(const std::string& keys, const std::string& more = "") {
  return R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, )" + keys +
         "}" + more + "}";
}

constexpr const char* kFsdp = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n";

TEST(Offload, IsCarriedWholeFromADeepSpeedFile) {
  const tiers::TierOptions options = offload_in(zero3(
      R"("offload_param": {"device": "nvme", "nvme_path": "/p", "buffer_count": 7,
           "buffer_size": 2e8, "max_in_cpu": 3e9, "pin_memory": false},
         "offload_optimizer": {"device": "nvme", "nvme_path": "/o", "buffer_count": 6,
           "pin_memory": false, "pipeline_read": false, "pipeline_write": true, "fast_init": true,
           "ratio": 0.3})",
      R"(, "aio": {"block_size": 262144, "queue_depth": 32, "intra_op_parallelism": 2,
           "single_submit": true, "overlap_events": false})"));
  EXPECT_EQ(options.parameters.tier, tiers::Tier::disk);
  EXPECT_EQ(options.parameters.folder, "/p");
  EXPECT_EQ(options.parameters.buffer_count, 7);
  EXPECT_FALSE(options.parameters.pin_memory);
  EXPECT_EQ(options.buffer_size, 200'000'000);
  EXPECT_EQ(options.max_in_cpu, 3'000'000'000);
  EXPECT_EQ(options.optimizer.tier, tiers::Tier::disk);
  EXPECT_EQ(options.optimizer.folder, "/o");
  EXPECT_EQ(options.optimizer.buffer_count, 6);
  EXPECT_FALSE(options.optimizer.pin_memory);
  EXPECT_FALSE(options.pipeline_read);
  EXPECT_TRUE(options.pipeline_write);
  EXPECT_TRUE(options.fast_init);
  EXPECT_EQ(options.ratio, 0.3);
  EXPECT_FALSE(options.everything);
  EXPECT_EQ(options.disk, (tiers::DiskSettings{.block_size = 262144,
                                               .queue_depth = 32,
                                               .num_threads = 2,
                                               .single_submit = true,
                                               .overlap_events = false}));
}

// DeepSpeed's defaults of the pipeline and the ratio do not count: here the pipeline is on and the
// ratio is open.
TEST(Offload, OverlapsUnlessTheFileSwitchesThatOff) {
  const tiers::TierOptions options = offload_in(zero3(R"("offload_optimizer": {"device": "cpu"})"));
  EXPECT_EQ(options.optimizer.tier, tiers::Tier::host);
  EXPECT_EQ(options.parameters.tier, tiers::Tier::device);
  EXPECT_EQ(options.parameters.buffer_count, 5);
  EXPECT_EQ(options.optimizer.buffer_count, 4);
  EXPECT_TRUE(options.pipeline_read);
  EXPECT_TRUE(options.pipeline_write);
  EXPECT_EQ(options.ratio, std::nullopt);
  EXPECT_EQ(offload_in(zero3(R"("offload_optimizer": {"device": "cpu", "ratio": 1.0})")).ratio,
            1.0);
}

TEST(Offload, OfFsdpIsEverything) {
  const tiers::TierOptions options =
      offload_in(std::string(kFsdp) + "  fsdp_offload_params: true\n");
  EXPECT_TRUE(options.everything);
  EXPECT_EQ(options.optimizer.tier, tiers::Tier::device);
}

TEST(Offload, KeysThatDisagreeAreNamedWithWhatToDo) {
  EXPECT_THAT(
      offload_errors(
          zero3(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/o", "buffer_count": 0})",
                R"(, "aio": {"block_size": 1000})")),
      ElementsAre("f:1: zero_optimization.offload_optimizer.buffer_count: is 0, expected at "
                  "least 1",
                  "f:1: aio.block_size: is 1000, expected a multiple of 4096 up to "
                  "1073741824"));
  // Where no disk is used, its settings may be anything.
  EXPECT_THAT(offload_errors(zero3(R"("offload_optimizer": {"device": "cpu"})",
                                   R"(, "aio": {"block_size": 1000})")),
              IsEmpty());
  Plan plan;
  plan.sharding.stage = 1;
  plan.offload.optimizer.device = "nvme";
  plan.offload.optimizer.nvme_path = std::optional<std::string>("/o");
  Problems problems;
  check_offload(plan, problems);
  ASSERT_EQ(problems.errors.size(), 1u);
  EXPECT_EQ(problems.errors[0].text(),
            "offload.optimizer.device: is nvme, which needs stage 3, but the stage is 1; set the "
            "stage to 3, or the device to cpu");
}

TEST(OffloadFlag, SaysWhatGoesAndWhere) {
  for (const std::string& file : {std::string(kFsdp), zero3(R"("overlap_comm": true)")}) {
    SCOPED_TRACE(file);
    tiers::TierOptions options = offload_in(file, {{"--offload", "optimizer"}});
    EXPECT_EQ(options.optimizer.tier, tiers::Tier::host);
    EXPECT_EQ(options.parameters.tier, tiers::Tier::device);
    options = offload_in(file, {{"--offload", "param:cpu"}, {"--offload", "optimizer:/nvme/a:b"}});
    EXPECT_EQ(options.parameters.tier, tiers::Tier::host);
    EXPECT_EQ(options.optimizer.tier, tiers::Tier::disk);
    EXPECT_EQ(options.optimizer.folder, "/nvme/a:b");
    options = offload_in(file, {{"--offload", "all:/nvme"}, {"--offload-ratio", "0.5"}});
    EXPECT_EQ(options.parameters.tier, tiers::Tier::disk);
    EXPECT_EQ(options.parameters.folder, "/nvme");
    EXPECT_EQ(options.optimizer.folder, "/nvme");
    EXPECT_EQ(options.ratio, 0.5);
    EXPECT_EQ(options.stepping, tiers::Stepping::automatic);
    EXPECT_EQ(options.resident_bytes, std::nullopt);
    EXPECT_EQ(offload_in(file, {{"--offload-resident", "1.5KiB"}}).resident_bytes, 1536);
    EXPECT_EQ(offload_in(file, {{"--offload-step", "host"}}).stepping, tiers::Stepping::host);
    EXPECT_EQ(offload_in(file, {{"--offload-step", "device"}}).stepping, tiers::Stepping::device);
    EXPECT_EQ(offload_in(file, {{"--offload-step", "0.25"}}).host_share, 0.25);
  }
}

TEST(OffloadFlag, IsOneOfItsWords) {
  for (const std::string value : {"", "cpu", "optimizer:", "params", "all:", ":cpu"}) {
    EXPECT_THAT(offload_errors(kFsdp, {{"--offload", value}}),
                ElementsAre("--offload: is '" + value +
                            "', expected optimizer, param or all, optionally followed by :cpu "
                            "or :FOLDER"));
  }
  EXPECT_THAT(offload_errors(kFsdp, {{"--offload-ratio", "2"}}),
              ElementsAre("--offload-ratio: is '2', expected a number from 0 to 1"));
  EXPECT_THAT(offload_errors(kFsdp, {{"--offload-resident", "half"}}),
              ElementsAre("--offload-resident: is 'half', expected a size such as 20GB"));
  for (const std::string value : {"", "gpu", "1.5", "-0.1", "nan", "0.5x"}) {
    EXPECT_THAT(offload_errors(kFsdp, {{"--offload-step", value}}),
                ElementsAre("--offload-step: is '" + value +
                            "', expected auto, device, host, or the host's share from 0 to 1"));
  }
}

TEST(OffloadFlag, MayNotContradictTheFileOrItself) {
  EXPECT_THAT(offload_errors(zero3(R"("offload_optimizer": {"device": "cpu"})"),
                             {{"--offload", "optimizer:/nvme"}}),
              ElementsAre("f:1: zero_optimization.offload_optimizer.device: is cpu, but --offload "
                          "is optimizer:/nvme; leave out the flag, or change the key"));
  EXPECT_THAT(offload_errors(kFsdp, {{"--offload", "optimizer"}, {"--offload", "optimizer:/n"}}),
              ElementsAre("--offload: is 'optimizer:/n', but an earlier one says cpu; keep one of "
                          "them"));
  EXPECT_THAT(offload_errors(kFsdp, {{"--offload", "optimizer"}, {"--offload", "all"}}), IsEmpty());
}

TEST(OffloadFlag, IsTakenOnCudaLikeTheKeys) {
  EXPECT_THAT(offload_errors(kFsdp, {{"--offload", "all"}}, "cuda"), IsEmpty());
  EXPECT_THAT(offload_errors(std::string(kFsdp) + "  fsdp_offload_params: true\n", {}, "cuda"),
              IsEmpty());
}

}  // namespace
}  // namespace fullshard::config
