// SPDX-License-Identifier: Apache-2.0
// Models with LoRA adapters against PEFT, and which modules names mean.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "fullshard/base/error.h"
#include "fullshard/models/lora/adapter_config.h"
#include "fullshard/models/lora/add_lora.h"
#include "fullshard/models/lora/module_names.h"
#include "fullshard/models/model_folder.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/models/decoder_cases.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kAdapterFixtures = FULLSHARD_SOURCE_DIR "/tests/fixtures/lora/";
const std::string kPeftPrefix = "base_model.model.";

AdapterConfig peft_config(const std::string& name) {
  return parse_adapter_config(read_file(kAdapterFixtures + name + "/adapter_config.json"),
                              "adapter_config.json");
}

// Every tensor of the adapter's file gives a parameter its values.
void take_adapter(LanguageModel& model, const TensorFile& file) {
  const at::NoGradGuard no_grad;
  size_t used = 0;
  for (auto& item : model.named_parameters()) {
    const auto found = file.find(kPeftPrefix + model.file_name(item.key()).name);
    EXPECT_EQ(found != file.end(), item.value().requires_grad()) << item.key();
    if (found == file.end()) continue;
    item.value().copy_(found->second);
    ++used;
  }
  EXPECT_EQ(used, file.size());
}

// The reference names gradients as the adapter's file does.
TensorFile without_prefix(const TensorFile& reference) {
  TensorFile renamed;
  for (const auto& [name, tensor] : reference) {
    const bool is_gradient = name.starts_with("grad." + kPeftPrefix);
    renamed[is_gradient ? "grad." + name.substr(5 + kPeftPrefix.size()) : name] = tensor;
  }
  return renamed;
}

struct AdapterCase {
  std::string name;
  std::string base;
};

class PeftAdapters : public ::testing::TestWithParam<AdapterCase> {};

TEST_P(PeftAdapters, ComputeWhatPeftComputes) {
  const auto& [name, base] = GetParam();
  const auto model = load_decoder(base);
  const auto layers = add_lora(*model, peft_config(name).lora);
  EXPECT_FALSE(layers.adapted.empty());
  take_adapter(*model, read_tensor_file(kAdapterFixtures + name + "/adapter_model.safetensors"));
  const auto reference = read_tensor_file(kAdapterFixtures + name + "/reference.safetensors");
  model->eval();  // adapters see no dropout, and bases have none
  expect_reference(*model, without_prefix(reference));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, PeftAdapters,
    ::testing::Values(AdapterCase{"llama", "llama"}, AdapterCase{"llama_patterns", "llama"},
                      AdapterCase{"gpt2", "gpt2"}, AdapterCase{"qwen2", "qwen2"},
                      AdapterCase{"bert_classes", "bert_classes"}, AdapterCase{"t5", "t5"}),
    [](const auto& which) { return which.param.name; });

TEST(AddLora, ChangesNothingUntilItIsTrained) {
  for (const auto& config : {tiny_gpt2(), tiny_llama()}) {
    const auto model = make_tiny(config);
    const auto before = model->forward(some_inputs());
    add_lora(*model, {.rank = 4, .target_modules = {"all-linear"}});
    EXPECT_TRUE(at::equal(model->forward(some_inputs()).loss, before.loss));
  }
}

TEST(AddLora, FreezesAllButItsOwn) {
  const auto model = make_tiny(tiny_llama());
  const auto layers = add_lora(*model, {.rank = 2, .modules_to_save = {"model.norm"}});
  EXPECT_THAT(layers.adapted,
              ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj",
                          "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"));
  EXPECT_THAT(layers.saved, ElementsAre("model.norm"));
  for (const auto& item : model->named_parameters()) {
    EXPECT_EQ(item.value().requires_grad(),
              is_lora_parameter(item.key()) || item.key() == "model.norm.weight")
        << item.key();
  }
}

TEST(AddLora, LeavesModulesToSaveWithoutAdapters) {
  const auto model = make_tiny(tiny_llama());
  const auto layers =
      add_lora(*model, {.target_modules = {"q_proj"}, .modules_to_save = {"layers.0.self_attn"}});
  EXPECT_THAT(layers.adapted, ElementsAre("model.layers.1.self_attn.q_proj"));
}

// PEFT looks for the end of a path, wherever that begins.
TEST(AddLora, SavesEveryModuleThatEndsSo) {
  const auto model = make_tiny(tiny_llama());
  const auto layers = add_lora(*model, {.target_modules = {"q_proj"}, .modules_to_save = {"norm"}});
  EXPECT_THAT(layers.saved, ElementsAre("model.layers.0.input_layernorm",
                                        "model.layers.0.post_attention_layernorm",
                                        "model.layers.1.input_layernorm",
                                        "model.layers.1.post_attention_layernorm", "model.norm"));
}

TEST(AddLora, SaysWhatCannotBeAndChangesNothing) {
  const auto model = make_tiny(tiny_llama());
  const auto refusal = [&](const LoraOptions& options) {
    return message_of([&] { add_lora(*model, options); });
  };
  EXPECT_THAT(
      refusal({.target_modules = {"q_prj"}}),
      HasSubstr("target modules: no module is called 'q_prj'; there are q_proj, down_proj"));
  EXPECT_THAT(refusal({.target_pattern = "model\\.layer\\..*"}),
              AllOf(HasSubstr("no linear layer matches"), HasSubstr("q_proj")));
  EXPECT_THAT(refusal({.target_pattern = "("}), HasSubstr("is not a regular expression"));
  EXPECT_THAT(refusal({.target_modules = {"embed_tokens"}}),
              HasSubstr("'model.embed_tokens' is a Embedding"));
  EXPECT_THAT(refusal({.target_modules = {"lm_head"}}),
              HasSubstr("'lm_head' is the head, which has no adapter here"));
  EXPECT_THAT(refusal({.target_modules = {"q_proj"}, .modules_to_save = {"nrm"}}),
              HasSubstr("modules to save: no module is called 'nrm'; there are norm"));
  EXPECT_THAT(refusal({.rank = 0}), HasSubstr("rank 0, expected at least 1"));
  EXPECT_THAT(refusal({.dropout = 1}), HasSubstr("dropout 1, expected"));
  EXPECT_THAT(refusal({.target_modules = {"q_proj"}, .target_pattern = "x"}),
              HasSubstr("both by names and by a pattern"));
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(item.value().requires_grad()) << item.key();
  }
}

TEST(AddLora, Int8IsHalfOfBf16) {
  const auto model = make_tiny(tiny_llama());
  add_lora(*model, {.rank = 2});
  const auto before = model->forward(some_inputs()).loss.item<double>();
  int64_t numel = 0, bytes = 0;
  const int64_t num_layers = quantise_base(*model);
  EXPECT_EQ(num_layers, 14);
  for (const auto& item : model->named_parameters()) {
    if (item.value().scalar_type() == at::kChar) numel += item.value().numel();
    const bool is_quantised = !at::isFloatingType(item.value().scalar_type());
    if (is_quantised) bytes += static_cast<int64_t>(item.value().nbytes());
  }
  EXPECT_EQ(numel, 2 * (4 * 32 * 32 + 3 * 32 * 40));
  EXPECT_EQ(bytes, numel + 4 * 2 * (4 * 32 + 2 * 40 + 32));  // a factor for each row
  EXPECT_NEAR(model->forward(some_inputs()).loss.item<double>(), before, 0.02);
}

TEST(ModuleNames, AreWholePathsOrEndsAfterADot) {
  EXPECT_TRUE(models::is_named("a.mlp.c_proj", "c_proj"));
  EXPECT_TRUE(models::is_named("a.mlp.c_proj", "mlp.c_proj"));
  EXPECT_TRUE(models::is_named("c_proj", "c_proj"));
  EXPECT_FALSE(models::is_named("a.mlp.c_proj", "proj"));
  EXPECT_FALSE(models::is_named("a.mlp.c_proj", ""));
}

// Backtracking would take longer than anybody waits.
TEST(ModuleNames, PatternsTakeNoExponentialTime) {
  const models::PathPattern hostile("(.+)+(.*)+x", "target");
  EXPECT_FALSE(hostile.matches("model.layers.11.self_attn.q_proj.and.more.of.the.same.path"));
  EXPECT_TRUE(hostile.matches("model.x"));
  EXPECT_THROW(models::PathPattern("(a)\\1", "target"), Error);
}

TEST(AdapterConfig, ComesBackFromItsText) {
  const AdapterConfig config{.lora = {.rank = 3,
                                      .alpha = 6,
                                      .dropout = 0.25,
                                      .target_modules = {"q_proj", "mlp.up_proj"},
                                      .modules_to_save = {"lm_head"},
                                      .use_rslora = true,
                                      .rank_pattern = {{"z", 5}, {"a", 4}},
                                      .alpha_pattern = {{"b", 1.5}}},
                             .base_model = "meta-llama/Llama-3.2-1B",
                             .task_type = "CAUSAL_LM",
                             .fan_in_fan_out = true};
  const auto text = adapter_config_text(config);
  EXPECT_THAT(text, AllOf(HasSubstr("\"r\": 3,"), HasSubstr("\"lora_alpha\": 6,"),
                          HasSubstr("\"peft_type\": \"LORA\"")));
  auto found = parse_adapter_config(text, "x");
  EXPECT_TRUE(found.lora.ignores_unmatched);
  found.lora.ignores_unmatched = false;
  EXPECT_EQ(found.lora, config.lora);
  EXPECT_EQ(found.base_model, config.base_model);
  EXPECT_EQ(found.task_type, config.task_type);
  EXPECT_TRUE(found.fan_in_fan_out);
}

TEST(AdapterConfig, RefusesWhatIsNotSupportedByName) {
  const auto refusal = [](const std::string& keys) {
    return message_of([&] {
      parse_adapter_config(R"({"peft_type": "LORA", "target_modules": ["q"], )" + keys + "}",
                           "adapter_config.json");
    });
  };
  EXPECT_EQ(refusal(R"("use_dora": false, "layers_to_transform": null)"), "no error");
  EXPECT_THAT(refusal(R"("use_dora": true)"), HasSubstr("use_dora is true"));
  EXPECT_THAT(refusal(R"("bias": "all")"), HasSubstr("bias is \"all\": only \"none\""));
  EXPECT_THAT(refusal(R"("lora_bias": true)"), HasSubstr("lora_bias is true"));
  EXPECT_THAT(refusal(R"("layers_to_transform": [1])"), HasSubstr("layers_to_transform is [1]"));
  EXPECT_THAT(refusal(R"("init_lora_weights": "pissa")"), HasSubstr("it changes the base"));
  EXPECT_THAT(refusal(R"("r": 0)"), HasSubstr("r is 0"));
  EXPECT_THAT(refusal(R"("r": 99999999)"), HasSubstr("r is 99999999"));
  EXPECT_THAT(refusal(R"("rank_pattern": {"q": "x"})"), HasSubstr("rank_pattern"));
  EXPECT_THAT(refusal(R"("rank_pattern": 7)"), HasSubstr("rank_pattern"));
  EXPECT_THAT(refusal(R"("lora_dropout": 2)"), HasSubstr("lora_dropout is 2"));
  EXPECT_THAT(message_of([] { parse_adapter_config(R"({"peft_type": "IA3"})", "file"); }),
              AllOf(HasSubstr("file"), HasSubstr("peft_type is \"IA3\""),
                    HasSubstr("target_modules is absent")));
  EXPECT_THAT(message_of([] { parse_adapter_config("[1]", "file"); }),
              HasSubstr("expected a JSON object"));
  EXPECT_THAT(message_of([] { parse_adapter_config("{", "file"); }), HasSubstr("file: "));
}

}  // namespace
}  // namespace fullshard::testing
