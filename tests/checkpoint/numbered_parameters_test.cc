// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/numbered_parameters.h"

#include <gmock/gmock.h>

#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;

formats::OptimizerFile optimizer_in(const std::string& path) {
  return formats::OptimizerFile(checkpoint_fixture("resumable/" + path));
}

// The tiny Llama of make_resumable.py.
std::vector<checkpoint::OrderedParameter> llama() {
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", {50, 16}},
          {layer + "self_attn.q_proj.weight", {16, 16}},
          {layer + "self_attn.k_proj.weight", {8, 16}},
          {layer + "self_attn.v_proj.weight", {8, 16}},
          {layer + "self_attn.o_proj.weight", {16, 16}},
          {layer + "mlp.gate_proj.weight", {24, 16}},
          {layer + "mlp.up_proj.weight", {24, 16}},
          {layer + "mlp.down_proj.weight", {16, 24}},
          {layer + "input_layernorm.weight", {16}},
          {layer + "post_attention_layernorm.weight", {16}},
          {"model.norm.weight", {16}}};
}

std::vector<std::string> names_of(const std::vector<checkpoint::OrderedParameter>& parameters) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.name);
  return names;
}

TEST(NumberedParameters, OneGroupIsInTheOrderOfTheModel) {
  const checkpoint::NumberedNames found =
      checkpoint::name_numbers(optimizer_in("accelerate_state/optimizer.bin"), llama());
  EXPECT_EQ(found.problem, "");
  EXPECT_EQ(found.names, names_of(llama()));
}

TEST(NumberedParameters, TheTrainersSecondGroupIsWhatDoesNotDecay) {
  const formats::OptimizerFile file = optimizer_in("trainer/optimizer.pt");
  EXPECT_THAT(file.group_sizes(), ElementsAre(8, 3));
  auto mixed = llama();  // norms first: their numbers are the last all the same
  std::rotate(mixed.begin(), mixed.begin() + 8, mixed.end());
  const checkpoint::NumberedNames found = checkpoint::name_numbers(file, mixed);
  EXPECT_EQ(found.problem, "");
  EXPECT_EQ(found.names, names_of(llama()));
}

TEST(NumberedParameters, BiasesOfTwoDimensionsDoNotDecayEither) {
  EXPECT_FALSE(checkpoint::decays_in_trainer({"block.0.relative_attention_bias.weight", {32, 4}}));
  EXPECT_FALSE(checkpoint::decays_in_trainer({"ln_1.weight", {4}}));
  EXPECT_TRUE(checkpoint::decays_in_trainer({"c_attn.weight", {4, 12}}));
}

TEST(NumberedParameters, WhatDoesNotFitIsSaid) {
  auto fewer = llama();
  fewer.pop_back();
  EXPECT_EQ(checkpoint::name_numbers(optimizer_in("trainer/optimizer.pt"), fewer).problem,
            "it numbers 11 parameters, and 10 are trained here");
  auto wider = llama();
  wider[2].shape = {9, 16};
  EXPECT_EQ(checkpoint::name_numbers(optimizer_in("trainer/optimizer.pt"), wider).problem,
            "its exp_avg of number 2 has the shape [8, 16], and model.layers.0.self_attn.k_proj."
            "weight, which is due there, has [9, 16]");
  auto flat = llama();
  flat[2].shape = {128};
  EXPECT_EQ(checkpoint::name_numbers(optimizer_in("trainer/optimizer.pt"), flat).problem,
            "it numbers its parameters in groups of 8 and 3, and which is which is known only of "
            "one group, or of two by weight decay");
  EXPECT_EQ(checkpoint::name_numbers(optimizer_in("three_groups/optimizer.pt"), llama()).problem,
            "it numbers its parameters in groups of 4 and 4 and 3, and which is which is known "
            "only of one group, or of two by weight decay");
}

TEST(OptimizerFile, ReadsNamesThatStandBesideNumbers) {
  const formats::OptimizerFile file = optimizer_in("named/optimizer.bin");
  EXPECT_TRUE(file.has_names());
  const auto averages = file.state("exp_avg");
  EXPECT_EQ(averages->tensors().size(), 11);
  EXPECT_EQ(averages->find("model.layers.0.mlp.down_proj.weight")->shape,
            (std::vector<int64_t>{16, 24}));
  EXPECT_EQ(file.num_steps(), 2);
}

}  // namespace
}  // namespace fullshard::testing
