// SPDX-License-Identifier: Apache-2.0
// Command lines of `accelerate launch`, passed to `launch`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/short_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;

class AccelerateLaunch : public ShortRuns {
 protected:
  // The values of the variables in a rank, one after the other.
  std::string told(const std::string& words, const std::string& variables) {
    std::string show;
    std::istringstream names(variables);
    for (std::string name; names >> name;) show += "<$" + name + ">";
    const launch::Ended ended =
        run("launch --ranks 1 " + words + " -- sh -c 'echo \"" + show + "\"'");
    return ended.status == 0 ? ended.output : "failed: " + ended.output;
  }
  std::string refusal(const std::string& words) {
    const launch::Ended ended = run("launch --ranks 1 " + words + " -- touch started");
    EXPECT_EQ(ended.status, 2) << ended.output;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "started")) << words;
    return ended.output;
  }
};

TEST_F(AccelerateLaunch, SaysToProgramsWhatAcceleratesSays) {
  EXPECT_EQ(told("--mixed_precision bf16", "ACCELERATE_MIXED_PRECISION ACCELERATE_USE_FSDP"),
            "<bf16><>\n");
  EXPECT_EQ(told("--use_fsdp --fsdp_sharding_strategy 2 --fsdp-offload-params true "
                 "--fsdp_transformer_layer_cls_to_wrap BertLayer",
                 "ACCELERATE_USE_FSDP FSDP_SHARDING_STRATEGY FSDP_OFFLOAD_PARAMS "
                 "FSDP_TRANSFORMER_CLS_TO_WRAP"),
            "<true><2><true><BertLayer>\n");
  EXPECT_EQ(told("--use_deepspeed --zero_stage 3 --offload_optimizer_device cpu "
                 "--gradient_clipping 0.5",
                 "ACCELERATE_USE_DEEPSPEED ACCELERATE_DEEPSPEED_ZERO_STAGE "
                 "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE ACCELERATE_GRADIENT_CLIPPING"),
            "<true><3><cpu><0.5>\n");
  // As in accelerate, settings imply the flag of the engine that reads them.
  EXPECT_EQ(told("--zero_stage 2", "ACCELERATE_USE_DEEPSPEED"), "<true>\n");
  EXPECT_EQ(told("--num_cpu_threads_per_process 3 --multi_gpu --same_network --rdzv_backend c10d",
                 "OMP_NUM_THREADS"),
            "<3>\n");
}

TEST_F(AccelerateLaunch, IsWhatOurOwnCommandsRunWith) {
  write_tokens("t.bin", 400);
  const launch::Ended ended =
      run("launch --num_processes 1 --use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP "
          "--mixed_precision bf16 fullshard train --no-save-model --steps 1 --data t.bin "
          "--sequence-length 16 --output out --model " +
          kRunModels + "llama");
  EXPECT_EQ(ended.status, 0) << ended.output;
  const auto record = nlohmann::json::parse(folder_.read("out/run.json"))["configuration"];
  EXPECT_EQ(record["fsdp_config.fsdp_sharding_strategy"]["value"], "SHARD_GRAD_OP");
  EXPECT_EQ(record["mixed_precision"]["value"], "bf16");
}

TEST_F(AccelerateLaunch, OverAFileWins) {
  folder_.write("fsdp.yaml",
                "distributed_type: FSDP\nmixed_precision: 'no'\nfsdp_config:\n"
                "  fsdp_sharding_strategy: FULL_SHARD\n");
  EXPECT_EQ(told("--config_file fsdp.yaml --mixed_precision bf16 --fsdp_sharding_strategy 2",
                 "FULLSHARD_SET ACCELERATE_USE_FSDP"),
            "<fsdp_config.fsdp_sharding_strategy=2\nmixed_precision=bf16><>\n");
  folder_.write("ds.json", R"({"zero_optimization": {"stage": 1}})");
  EXPECT_EQ(refusal("--deepspeed ds.json --mixed_precision bf16"),
            "error: launch: --mixed_precision: is a setting of Accelerate's files, but ds.json is "
            "not one; set it there by its own key\n");
}

TEST_F(AccelerateLaunch, SaysWhatToWriteInPlaceOfWhatItLacks) {
  EXPECT_EQ(refusal("--module"),
            "error: launch: --module: is not supported; write fullshard launch … -- python -m "
            "MODULE\n");
  EXPECT_THAT(refusal("--use_megatron_lm"), HasSubstr("use --use_fsdp"));
  EXPECT_THAT(refusal("--tpu"), HasSubstr("ranks compute on GPUs or CPUs"));
  EXPECT_THAT(refusal("--dynamo_backend inductor"), HasSubstr("leave it out"));
  EXPECT_THAT(refusal("--use_fsdp --use_deepspeed"),
              HasSubstr("given together with --use_deepspeed"));
  EXPECT_EQ(refusal("--mixed_precision float"),
            "error: launch: --mixed_precision: is \"float\", expected one of no, fp16, bf16, "
            "fp8\n");
  EXPECT_THAT(refusal("--fsdp_sharding_strategy 9"), HasSubstr("is 9, expected one of FULL_SHARD"));
  EXPECT_EQ(refusal("--fsdp_reshard_after_forward true"),
            "error: launch: --fsdp_reshard_after_forward: is a setting of version 2; add "
            "--fsdp_version 2\n");
}

}  // namespace
}  // namespace fullshard::cli
