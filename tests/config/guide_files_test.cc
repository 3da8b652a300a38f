// SPDX-License-Identifier: Apache-2.0
// The files of Hugging Face's guides to FSDP and DeepSpeed: each gives a Plan that holds its
// settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "fullshard/config/plan.h"
#include "tests/config/fixtures.h"

namespace fullshard::config {
namespace {

using ::testing::HasSubstr;

struct GuideFile {
  const char* name;
  const char* key;    // a key that the file sets
  const char* value;  // in effect, as JSON
  int commas = 0;     // Arabic commas, which a guide has in place of JSON's
};

constexpr GuideFile kGuideFiles[] = {
    {"fsdp.yaml", "fsdp_config.fsdp_sharding_strategy", R"("FULL_SHARD")"},
    {"xla.yaml", "fsdp_config.xla_fsdp_grad_ckpt", "true"},
    {"zero1.json", "zero_optimization.stage", "1"},
    {"zero2.json", "zero_optimization.round_robin_gradients", "true"},
    {"zero3.json", "zero_optimization.stage3_prefetch_bucket_size", "235929"},
    {"nvme.json", "aio.intra_op_parallelism", "1", 36},
    {"optimizer.json", "optimizer.params.lr", "5e-05", 4},
    {"untested_optimizer.json", "zero_allow_untested_optimizer", "true"},
    {"own_cpu_optimizer.json", "zero_force_ds_cpu_optimizer", "false"},
    {"scheduler.json", "scheduler.params.total_num_steps", "100", 4},
    {"fp16_off.json", "fp16.enabled", "false"},
    {"fp16.json", "fp16.hysteresis", "2"},
    {"fp16_commas.json", "fp16.initial_scale_power", "16", 5},
    {"amp.json", "amp.opt_level", R"("O1")"},
    {"bf16.json", "bf16.enabled", "false"},
    {"batch.json", "train_batch_size", "16"},
    {"accumulation.json", "gradient_accumulation_steps", "1"},
    {"clipping.json", "gradient_clipping", "1.0"},
    {"communication.json", "communication_data_type", R"("fp32")"},
    {"node_local.json", "checkpoint.use_node_local_storage", "true"},
    {"notebook.json", "zero_optimization.offload_param.device", R"("cpu")"},
    {"gather_16bit.json", "zero_optimization.stage3_gather_16bit_weights_on_model_save", "true"},
    {"inference.json", "zero_optimization.stage3_prefetch_bucket_size", "3774873"},
};

// The inputs that "auto" needs, and two ranks.
PlanOptions options_of_a_run() {
  return {.ranks = 2, .inputs = {.hidden_size = 512, .num_training_steps = 100}};
}

std::string with_commas(std::string text) {
  constexpr std::string_view kArabic = "\u060C";
  for (size_t at = text.find(kArabic); at != std::string::npos; at = text.find(kArabic)) {
    text.replace(at, kArabic.size(), ",");
  }
  return text;
}

class GuideFiles : public ::testing::TestWithParam<GuideFile> {
 protected:
  std::string text() const {
    return read_text(std::string(FULLSHARD_SOURCE_DIR "/tests/fixtures/guides/") + GetParam().name);
  }
};

TEST_P(GuideFiles, ComeToAPlan) {
  const GuideFile& file = GetParam();
  const PlanReading as_it_stands = read_plan(text(), file.name, options_of_a_run());
  ASSERT_EQ(as_it_stands.problems.errors.size(), static_cast<size_t>(file.commas))
      << as_it_stands.problems.text();
  for (const Problem& problem : as_it_stands.problems.errors) {
    EXPECT_THAT(problem.text(), HasSubstr("is U+060C (Arabic comma); write ,"));
  }
  const PlanReading reading = read_plan(with_commas(text()), file.name, options_of_a_run());
  ASSERT_TRUE(reading.problems.ok()) << reading.problems.text();
  EXPECT_TRUE(reading.plan.unresolved().empty());
  const auto keys = nlohmann::json::parse(reading.plan.effective_json());
  EXPECT_EQ(keys[file.key]["value"], nlohmann::json::parse(file.value)) << file.key;
}

std::string name_of_guide_file(const ::testing::TestParamInfo<GuideFile>& file) {
  const std::string name = file.param.name;
  return name.substr(0, name.find('.'));
}

INSTANTIATE_TEST_SUITE_P(All, GuideFiles, ::testing::ValuesIn(kGuideFiles), name_of_guide_file);

TEST(GuideFilesOfTheFolder, AreAllInTheTable) {
  std::set<std::string> names, listed;
  for (const auto& entry :
       std::filesystem::directory_iterator(FULLSHARD_SOURCE_DIR "/tests/fixtures/guides")) {
    names.insert(entry.path().filename().string());
  }
  for (const GuideFile& file : kGuideFiles) listed.insert(file.name);
  EXPECT_EQ(names, listed);
}

}  // namespace
}  // namespace fullshard::config
