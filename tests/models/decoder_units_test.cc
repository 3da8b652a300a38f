// SPDX-License-Identifier: Apache-2.0
// Decoders as the sharding engine meets them: units, their names and calls.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/models/model_folder.h"
#include "fullshard/nn/module_walk.h"
#include "fullshard/nn/unit_state.h"
#include "tests/models/decoder_cases.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;

struct CountingHooks : nn::ForwardHooks {
  int before = 0;
  int after = 0;
  void before_forward(const std::vector<at::Tensor>&) override { ++before; }
  void after_forward(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&) override {
    ++after;
  }
  void forward_failed() noexcept override {}
  void enter_recompute(nn::RecomputePass, uint64_t) override {}
  void leave_recompute() noexcept override {}
};

// Without embedding and head, which are units of large vocabularies only.
std::vector<nn::UnitState*> units_of(LanguageModel& model) {
  std::vector<nn::UnitState*> units;
  nn::for_each_node(nn::walk_modules(model), [&](const nn::ModuleNode& node) {
    auto* unit = dynamic_cast<nn::UnitState*>(node.module);
    if (unit && unit->vocabulary_part() == nn::VocabularyPart::none) units.push_back(unit);
  });
  return units;
}

std::vector<std::string> unit_names(LanguageModel& model) {
  std::vector<std::string> names;
  for (const auto* unit : units_of(model)) names.push_back(unit->class_name());
  return names;
}

TEST(DecoderUnits, ACallThroughTheBaseRunsTheHooksOfRootAndBlocks) {
  for (const std::string folder : {"gpt2", "llama", "mistral", "qwen2"}) {
    const std::shared_ptr<LanguageModel> model = load_decoder(folder);
    CountingHooks hooks;
    for (auto* unit : units_of(*model)) unit->set_hooks(&hooks);
    model->forward(some_inputs());
    EXPECT_EQ(hooks.before, 3) << folder;
    EXPECT_EQ(hooks.after, 3) << folder;
  }
}

TEST(DecoderUnits, CarryTransformersClassNames) {
  EXPECT_THAT(unit_names(*load_decoder("gpt2")),
              ElementsAre("GPT2LMHeadModel", "GPT2Block", "GPT2Block"));
  EXPECT_THAT(unit_names(*load_decoder("llama")),
              ElementsAre("LlamaForCausalLM", "LlamaDecoderLayer", "LlamaDecoderLayer"));
  EXPECT_THAT(unit_names(*load_decoder("mistral")),
              ElementsAre("MistralForCausalLM", "MistralDecoderLayer", "MistralDecoderLayer"));
  EXPECT_THAT(unit_names(*load_decoder("qwen2")),
              ElementsAre("Qwen2ForCausalLM", "Qwen2DecoderLayer", "Qwen2DecoderLayer"));
}

std::vector<std::string> vocabulary_parts(LanguageModel& model) {
  std::vector<std::string> parts;
  nn::for_each_node(nn::walk_modules(model), [&](const nn::ModuleNode& node) {
    const auto* unit = dynamic_cast<nn::UnitState*>(node.module);
    if (!unit || unit->vocabulary_part() == nn::VocabularyPart::none) return;
    const bool is_head = unit->vocabulary_part() == nn::VocabularyPart::head;
    parts.push_back((is_head ? "head " : "embedding ") + node.path + " " + node.class_name);
  });
  return parts;
}

TEST(DecoderUnits, MarkEmbeddingAndHeadWhereTheyAreTwo) {
  EXPECT_THAT(vocabulary_parts(*load_decoder("llama")),
              ElementsAre("embedding model.embed_tokens Embedding", "head lm_head LanguageHead"));
  EXPECT_THAT(vocabulary_parts(*load_decoder("gpt2_options")),
              ElementsAre("embedding transformer.wte Embedding", "head lm_head LanguageHead"));
  EXPECT_THAT(vocabulary_parts(*load_decoder("llama_tied")), ElementsAre());
  EXPECT_THAT(vocabulary_parts(*load_decoder("gpt2")), ElementsAre());
}

TEST(DecoderUnits, NameTheirArchitectureAndBlocks) {
  for (const auto& folder : decoder_folders()) {
    const auto model = load_decoder(folder);
    const auto names = unit_names(*model);
    EXPECT_EQ(model->architecture(), names[0]);
    EXPECT_EQ(model->block_class(), names[1]);
    EXPECT_FALSE(model->is_encoder_decoder());
    EXPECT_FALSE(model->is_masked());
  }
}

TEST(DecoderUnits, ACallRunsTheHooksOfEmbeddingAndHead) {
  const auto model = load_decoder("llama");
  CountingHooks hooks;
  nn::for_each_node(nn::walk_modules(*model), [&](const nn::ModuleNode& node) {
    auto* unit = dynamic_cast<nn::UnitState*>(node.module);
    if (unit && unit->vocabulary_part() != nn::VocabularyPart::none) unit->set_hooks(&hooks);
  });
  model->forward(some_inputs());
  EXPECT_EQ(hooks.before, 2);
  EXPECT_EQ(hooks.after, 2);
}

TEST(DecoderUnits, RecomputationKeepsTheBitsOfGradients) {
  for (const std::string folder : {"gpt2", "mistral"}) {
    const auto plain = load_decoder(folder);
    const auto recomputed = load_decoder(folder);
    for (auto* unit : units_of(*recomputed)) {
      unit->set_recompute(unit->class_name() == recomputed->block_class());
    }
    plain->forward(some_inputs()).loss.backward();
    recomputed->forward(some_inputs()).loss.backward();
    for (const auto& name : parameter_names(*plain)) {
      EXPECT_TRUE(
          at::equal(parameter_of(*recomputed, name).grad(), parameter_of(*plain, name).grad()))
          << folder << " " << name;
    }
  }
}

// Arguments of a unit that are cast to bf16 leave the angles in fp32: the error is that of bf16
// products, not of positions rounded to 8 bits.
TEST(DecoderUnits, ComputeInBf16) {
  const auto reference = read_tensor_file(fixture_path("llama/reference.safetensors"));
  const auto model = load_decoder("llama");
  model->to(at::kBFloat16);
  for (auto* unit : units_of(*model)) unit->set_casts({.inputs = at::kBFloat16});
  const auto outputs = model->forward(inputs_of(reference));
  EXPECT_EQ(outputs.logits.scalar_type(), at::kBFloat16);
  const double loss = reference.at("loss").item<double>();
  EXPECT_NEAR(outputs.loss.item<double>(), loss, 0.01 * loss);
}

TEST(DecoderUnits, FilesMayLackThePrefixAndRepeatATiedHead) {
  const auto gpt2 = load_decoder("gpt2");
  const auto table = gpt2->file_name("transformer.wte.weight");
  EXPECT_EQ(table.name, "transformer.wte.weight");
  EXPECT_FALSE(table.transposed);
  EXPECT_THAT(table.others, ElementsAre("wte.weight", "lm_head.weight"));
  const auto fused = gpt2->file_name("transformer.h.1.attn.c_attn.weight");
  EXPECT_TRUE(fused.transposed);
  EXPECT_THAT(fused.others, ElementsAre("h.1.attn.c_attn.weight"));
  EXPECT_FALSE(gpt2->file_name("transformer.h.1.attn.c_attn.bias").transposed);

  const auto untied = load_decoder("llama");
  EXPECT_THAT(untied->file_name("lm_head.weight").others, ElementsAre());
  EXPECT_THAT(untied->file_name("model.embed_tokens.weight").others,
              ElementsAre("embed_tokens.weight"));
  EXPECT_THAT(load_decoder("llama_tied")->file_name("model.embed_tokens.weight").others,
              ElementsAre("embed_tokens.weight", "lm_head.weight"));
}

TEST(DecoderUnits, PassOverWhatFilesHoldBesideParameters) {
  const auto gpt2 = load_decoder("gpt2");
  EXPECT_TRUE(gpt2->is_ignored_in_files("h.0.attn.bias"));
  EXPECT_TRUE(gpt2->is_ignored_in_files("transformer.h.0.attn.masked_bias"));
  EXPECT_TRUE(gpt2->is_ignored_in_files("lm_head.weight"));
  EXPECT_FALSE(gpt2->is_ignored_in_files("h.0.attn.c_attn.bias"));
  EXPECT_FALSE(load_decoder("gpt2_options")->is_ignored_in_files("lm_head.weight"));
  const auto llama = load_decoder("llama");
  EXPECT_TRUE(llama->is_ignored_in_files("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(llama->is_ignored_in_files("lm_head.weight"));
  EXPECT_TRUE(load_decoder("llama_tied")->is_ignored_in_files("lm_head.weight"));
}

}  // namespace
}  // namespace fullshard::testing
