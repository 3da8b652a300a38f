// SPDX-License-Identifier: Apache-2.0
// Parameter rules, and what schedules and checkpoints set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <regex>

#include "fullshard/base/error.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/sgd.h"
#include "fullshard/optim/torch/foreign_optimizer.h"
#include "tests/errors.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {
namespace {

template <class Kind, class Options>
std::string refusal(const Options& options) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  return message_of([&] { Kind optimizer(sharded, options); });
}

// Values after one step of plain SGD with lr 0.5 and the given rules, gradient all ones.
Values after_one_step(const std::vector<ParameterRule>& rules, int ranks) {
  FixedRun run{.ranks = ranks, .steps = 1, .clip = 0};
  return train_fixed(run,
                     [&](ShardedModel& model) {
                       return std::make_unique<Sgd>(
                           model, SgdOptions{.lr = 0.5, .weight_decay = 0.25, .rules = rules});
                     })
      .masters;
}

TEST(Rules, TheFirstThatMatchesCounts) {
  const std::vector<ParameterRule> rules = {
      {.pattern = "^part\\.norm", .weight_decay = 0},
      {.pattern = "part", .weight_decay = 1, .lr_scale = 0.5},
  };
  for (const int ranks : {1, 3}) {
    const auto gradients = mean_gradients(0, ranks);
    Values expected;
    for (const auto& item : make_fixed()->named_parameters()) {
      const auto& name = item.key();
      const double lr = name == "part.bias" ? 0.25 : 0.5;
      const double decay = name == "part.bias" ? 1 : (name == "part.norm_weight" ? 0 : 0.25);
      const auto p = item.value().detach().to(at::kDouble);
      expected[name] = p - lr * (gradients.at(name).to(at::kDouble) + decay * p);
    }
    expect_close(after_one_step(rules, ranks), expected, fmt::format("{} ranks", ranks));
  }
}

TEST(Rules, OneThatMatchesNothingIsAnErrorOnEveryRank) {
  run_ranks({.ranks = 3}, [](const World& world) {
    auto model = make_fixed();
    auto sharded = shard(model, world);
    EXPECT_EQ(
        message_of([&] { AdamW optimizer(sharded, {.rules = {{.pattern = "layers\\.\\d"}}}); }),
        "AdamW: the rule's pattern 'layers\\.\\d' is found in no trainable parameter's name, "
        "or earlier rules took them all; there are 5 names, as weight, part.norm_weight, "
        "part.bias, tail.norm_weight, tail.bias");
  });
}

TEST(Rules, RefusesBadPatternsAndValues) {
  EXPECT_THAT(refusal<AdamW>(AdamWOptions{.rules = {{.pattern = "(bias"}}}),
              ::testing::HasSubstr("the rule's pattern '(bias' is no regular expression"));
  EXPECT_EQ(refusal<AdamW>(AdamWOptions{.rules = {{.pattern = "bias", .weight_decay = -1}}}),
            "AdamW, rule 'bias': weight_decay is -1, expected at least 0");
  EXPECT_EQ(refusal<Sgd>(SgdOptions{.rules = {{.pattern = "bias", .lr_scale = -2}}}),
            "SGD, rule 'bias': lr_scale is -2, expected at least 0");
}

TEST(Rules, NoDecayFindsNormsAndBiasesOfUsualModels) {
  const auto rules = no_decay_for_norms_and_biases();
  ASSERT_EQ(rules.size(), 1);
  EXPECT_EQ(rules[0].weight_decay, 0);
  const std::regex pattern(rules[0].pattern);
  for (const char* name :
       {"model.layers.0.input_layernorm.weight", "model.norm.weight", "h.3.ln_1.weight",
        "transformer.ln_f.weight", "h.0.attn.c_attn.bias",
        "encoder.layer.1.output.LayerNorm.weight", "block.0.layer.0.layer_norm.weight",
        "ln1.weight", "blocks.0.norm2.weight"}) {
    EXPECT_TRUE(std::regex_search(name, pattern)) << name;
  }
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "h.0.mlp.c_fc.weight",
                           "normaliser.weight", "blocks.1.align.weight", "lnear.weight"}) {
    EXPECT_FALSE(std::regex_search(name, pattern)) << name;
  }
}

struct OwnLayerNormImpl : torch::nn::LayerNormImpl {
  OwnLayerNormImpl() : LayerNormImpl(torch::nn::LayerNormOptions({4})) {}
};
TORCH_MODULE(OwnLayerNorm);

struct NormedImpl : Unit {
  NormedImpl()
      : a(register_module("a", torch::nn::Linear(4, 4))),
        n(register_module("n", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})))),
        own(register_module("own", OwnLayerNorm())),
        unit(register_module("unit",
                             Wrap<torch::nn::LayerNorm>(torch::nn::LayerNormOptions({4})))) {}
  at::Tensor forward(const at::Tensor& x) { return unit(own(n(a(x)))); }
  torch::nn::Linear a;
  torch::nn::LayerNorm n;
  OwnLayerNorm own;
  Wrap<torch::nn::LayerNorm> unit;
};
FULLSHARD_UNIT(Normed);

TEST(Rules, NoDecayTakesALayerNormOfAnyName) {
  for (const int ranks : {1, 2}) {
    run_ranks({.ranks = ranks}, [](const World& world) {
      Normed model;
      auto sharded = shard(model, world, {.sync_module_states = true});
      const ParameterTable table("AdamW", sharded, no_decay_for_norms_and_biases());
      for (const char* name :
           {"a.bias", "n.weight", "n.bias", "own.weight", "own.bias", "unit.weight", "unit.bias"}) {
        EXPECT_EQ(table.of(name).weight_decay, 0) << name;
      }
      EXPECT_EQ(table.of("a.weight").weight_decay, std::nullopt);
      // A pattern alone goes by names.
      const ParameterTable by_name("AdamW", sharded, {{.pattern = "^n\\.b", .weight_decay = 0}});
      EXPECT_EQ(by_name.of("n.weight").weight_decay, std::nullopt);
    });
  }
}

TEST(Settings, SchedulesSetRateAndMomentum) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  AdamW adam(sharded, {});
  adam.set_lr(0.25);
  adam.set_momentum(0.7);
  adam.set_beta2(0.99);
  EXPECT_EQ(adam.lr(), 0.25);
  EXPECT_EQ(adam.momentum(), 0.7);
  EXPECT_EQ(adam.beta2(), 0.99);
  EXPECT_EQ(message_of([&] { adam.set_lr(-1); }), "AdamW: lr is -1, expected at least 0");
  EXPECT_EQ(message_of([&] { adam.set_momentum(1); }),
            "AdamW: momentum is 1, expected 0 <= momentum < 1");
  Sgd sgd(sharded, {});
  EXPECT_FALSE(sgd.has_momentum());
  EXPECT_EQ(message_of([&] { sgd.set_momentum(0.5); }),
            "SGD: momentum cannot be set to 0.5: it was made without one");
}

TEST(Settings, CheckpointsSeeNamesStatesAndSteps) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  AdamW adam(sharded, {.state_dtype = at::kBFloat16});
  EXPECT_EQ(adam.name(), "AdamW");
  EXPECT_EQ(adam.state_names(), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(adam.state(1, 0).numel(), sharded.shard_numel(1));
  EXPECT_EQ(adam.state(1, 0).scalar_type(), at::kBFloat16);
  adam.restore_num_steps(41);
  model(fixed_gradients(0, 0)).backward();
  adam.step();
  EXPECT_EQ(adam.num_steps(), 42);
}

TEST(Settings, AStepWithoutGradientsDoesNotCount) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  AdamW adam(sharded, {});
  EXPECT_THROW(adam.step(), Error);
  EXPECT_EQ(adam.num_steps(), 0);
}

TEST(ForeignOptimizer, NamesTheKeyThatIsMissing) {
  const auto parameter = at::zeros({1}).requires_grad_();
  torch::optim::SGD sgd({parameter}, 0.1);
  torch::optim::Adam adam({parameter});
  EXPECT_THAT(message_of([&] { check_foreign_optimizer({.stage = 2}, sgd); }),
              ::testing::HasSubstr("SGD: it is not one of those tested with ZeRO stage 2; set "
                                   "\"zero_allow_untested_optimizer\": true to use it"));
  EXPECT_NO_THROW(check_foreign_optimizer({.stage = 2}, adam));
  EXPECT_NO_THROW(check_foreign_optimizer({.stage = 0}, sgd));
  EXPECT_NO_THROW(
      check_foreign_optimizer({.zero_allow_untested_optimizer = true, .stage = 3}, sgd));
  EXPECT_THAT(message_of([&] { check_foreign_optimizer({.offload = true, .stage = 2}, adam); }),
              ::testing::HasSubstr("set \"zero_force_ds_cpu_optimizer\": false"));
  EXPECT_NO_THROW(check_foreign_optimizer(
      {.zero_force_ds_cpu_optimizer = false, .offload = true, .stage = 2}, adam));
}

}  // namespace
}  // namespace fullshard::testing
