// SPDX-License-Identifier: Apache-2.0
// `fullshard config template`, and the files themselves; and the file that `accelerate config`
// wrote.
#include "fullshard/config/config_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTinyLlama = R"({"architectures": ["LlamaForCausalLM"],
  "model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 60,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})";

class ConfigTemplates : public ::testing::Test {
 protected:
  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME XDG_CACHE_HOME HF_HOME FULLSHARD_CONFIG; export "
                         "HOME=" +
                         folder_.path() + " OMP_NUM_THREADS=1; fullshard " + words);
  }

  // Enough for one step of the files' batch on two ranks.
  void write_model_and_data() {
    std::filesystem::create_directories(folder_ / "llama");
    folder_.write("llama/config.json", kTinyLlama);
    std::string bytes;
    for (int i = 0; i < 16 * 16 + 1; ++i) bytes += {static_cast<char>(3 + i % 50), '\0'};
    folder_.write("t.bin", bytes);
  }

  launch::TemporaryFolder folder_;
};

TEST_F(ConfigTemplates, AreListedWithWhatTheyDo) {
  const launch::Ended ended = run("config template");
  EXPECT_EQ(ended.status, 0);
  for (const config::ConfigTemplate& file : config::config_templates()) {
    EXPECT_THAT(ended.output, HasSubstr(std::string(file.name) + " "));
    EXPECT_THAT(ended.output, HasSubstr(" " + std::string(file.summary()) + "\n"));
    EXPECT_FALSE(file.summary().empty()) << file.name;
  }
  EXPECT_THAT(ended.output, HasSubstr("zero3-nvme     json   ZeRO-3, parameters and optimizer "
                                      "states on a disk\n"));
}

TEST_F(ConfigTemplates, AreTheFilesOfTheExamples) {
  EXPECT_GE(config::config_templates().size(), 13u);
  for (const config::ConfigTemplate& file : config::config_templates()) {
    const std::string name(file.name);
    const auto written =
        launch::shell("cat " FULLSHARD_SOURCE_DIR "/examples/configs/" + std::string(file.file));
    EXPECT_EQ(run("config template " + name).output, written.output) << name;
    EXPECT_EQ(run("config template " + name + " --output out/" + name).status, 0);
    EXPECT_EQ(folder_.read("out/" + name), written.output) << name;
    EXPECT_EQ(run("config check out/" + name).status, 0) << name;
  }
}

TEST_F(ConfigTemplates, ArePlainJsonWhereThatIsAskedFor) {
  for (const config::ConfigTemplate& file : config::config_templates()) {
    const std::string plain = run("config template --plain " + std::string(file.name)).output;
    EXPECT_THAT(plain, Not(HasSubstr(" # "))) << file.name;
    if (file.file.ends_with(".json")) {
      EXPECT_TRUE(nlohmann::json::accept(plain)) << plain;
    }
  }
}

TEST_F(ConfigTemplates, AreNotWrittenOverOtherFiles) {
  folder_.write("mine.yaml", "x");
  const launch::Ended ended = run("config template fsdp2 --output mine.yaml");
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.output, HasSubstr("mine.yaml: already exists; add --overwrite"));
  EXPECT_EQ(folder_.read("mine.yaml"), "x");
  EXPECT_EQ(run("config template fsdp2 --output mine.yaml --overwrite").status, 0);
  const launch::Ended unknown = run("config template zero-3");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.output, HasSubstr("no template 'zero-3', did you mean 'zero3'?"));
}

TEST_F(ConfigTemplates, TrainAsTheyAre) {
  write_model_and_data();
  for (const config::ConfigTemplate& file : config::config_templates()) {
    const std::string name(file.name);
    std::string words =
        "train --quiet --model llama --data t.bin --sequence-length 16 --steps 1 --no-save-model "
        "--overwrite --device cpu --ranks 2 --config " FULLSHARD_SOURCE_DIR "/examples/configs/" +
        std::string(file.file);
    if (name == "zero3-nvme") {
      for (const std::string what : {"optimizer", "param"}) {
        words += " --set zero_optimization.offload_" + what + ".nvme_path=" + folder_.path();
      }
    }
    const launch::Ended ended = run(words);
    EXPECT_EQ(ended.status, 0) << name << "\n" << ended.output;
  }
}

TEST_F(ConfigTemplates, OfAcceleratesOwnQuestionnaireAreFound) {
  write_model_and_data();
  std::filesystem::create_directories(folder_ / ".cache/huggingface/accelerate");
  std::filesystem::copy(FULLSHARD_SOURCE_DIR "/examples/configs/fsdp2-bf16.yaml",
                        folder_ / ".cache/huggingface/accelerate/default_config.yaml");
  const std::string words =
      "train --model llama --data t.bin --sequence-length 16 --steps 1 --no-save-model "
      "--overwrite --device cpu";
  const launch::Ended found = run(words);
  EXPECT_EQ(found.status, 0) << found.output;
  EXPECT_THAT(found.output,
              HasSubstr("note: using " + folder_.path() +
                        "/.cache/huggingface/accelerate/default_config.yaml, which `accelerate "
                        "config` wrote\n"));
  const auto record = nlohmann::json::parse(folder_.read("fullshard-run/run.json"));
  EXPECT_EQ(record["mesh"]["world"], 2);
  EXPECT_EQ(record["configuration"]["mixed_precision"]["value"], "bf16");
  // Our own comes first, and a named one before both.
  std::filesystem::create_directories(folder_ / ".config/fullshard");
  std::filesystem::copy(FULLSHARD_SOURCE_DIR "/examples/configs/fsdp1.yaml",
                        folder_ / ".config/fullshard/default_config.yaml");
  EXPECT_THAT(run(words).output, HasSubstr("which `fullshard config` wrote\n"));
  EXPECT_THAT(
      run(words + " --ranks 1 --config " FULLSHARD_SOURCE_DIR "/examples/configs/zero2.json")
          .output,
      Not(HasSubstr("note: using")));
}

}  // namespace
}  // namespace fullshard::cli
