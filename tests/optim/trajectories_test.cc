// SPDX-License-Identifier: Apache-2.0
// Against torch's and DeepSpeed's own trajectories: tests/fixtures/optimizers.
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/nn/unit.h"
#include "fullshard/optim/defaults.h"
#include "fullshard/optim/sgd.h"

namespace fullshard::optim {
namespace {

using Json = nlohmann::json;

struct PairImpl : Unit {
  PairImpl() {
    weight = register_parameter("weight", at::zeros({5, 7}));
    bias = register_parameter("bias", at::zeros({19}));
  }
  at::Tensor forward(at::Tensor x) {
    return (weight.view({35}) * x.narrow(0, 0, 35)).sum() + (bias * x.narrow(0, 35, 19)).sum();
  }
  at::Tensor weight, bias;
};
FULLSHARD_UNIT(Pair);

at::Tensor values_of(const Json& numbers) {
  return at::tensor(numbers.get<std::vector<double>>(), at::kDouble).to(at::kFloat);
}

void set_betas(const Json& options, double& beta1, double& beta2) {
  if (!options.contains("betas")) return;
  beta1 = options["betas"][0];
  beta2 = options["betas"][1];
}

AdamWOptions adam_options(const Json& json, bool is_torch_adamw, bool adam_w_mode) {
  AdamWOptions options;
  options.lr = json["lr"];
  set_betas(json, options.beta1, options.beta2);
  options.epsilon = json.value("eps", options.epsilon);
  options.weight_decay = json.value("weight_decay", is_torch_adamw ? 1e-2 : 0.0);
  options.adam_w_mode = adam_w_mode;
  options.bias_correction = json.value("bias_correction", true);
  return options;
}

SgdOptions sgd_options(const Json& json) {
  return {.lr = json["lr"],
          .momentum = json.value("momentum", 0.0),
          .weight_decay = json.value("weight_decay", 0.0),
          .dampening = json.value("dampening", 0.0),
          .nesterov = json.value("nesterov", false)};
}

AdagradOptions adagrad_options(const Json& json) {
  auto options = deepspeed_adagrad_defaults();
  options.lr = json["lr"];
  options.lr_decay = json.value("lr_decay", 0.0);
  options.weight_decay = json.value("weight_decay", 0.0);
  options.initial_accumulator_value = json.value("initial_accumulator_value", 0.0);
  options.epsilon = json.value("eps", options.epsilon);
  return options;
}

LionOptions lion_options(const Json& json) {
  auto options = deepspeed_lion_defaults();
  options.lr = json["lr"];
  set_betas(json, options.beta1, options.beta2);
  options.weight_decay = json.value("weight_decay", 0.0);
  return options;
}

LambOptions lamb_options(const Json& json) {
  auto options = deepspeed_lamb_defaults();
  options.lr = json["lr"];
  set_betas(json, options.beta1, options.beta2);
  options.epsilon = json.value("eps", options.epsilon);
  options.weight_decay = json.value("weight_decay", 0.0);
  options.bias_correction = json.value("bias_correction", true);
  options.eps_inside_sqrt = json.value("eps_inside_sqrt", false);
  options.max_coeff = json.value("max_coeff", options.max_coeff);
  options.min_coeff = json.value("min_coeff", options.min_coeff);
  return options;
}

std::unique_ptr<Optimizer> make(const Json& test, const ShardedModel& model) {
  const std::string kind = test["optimizer"];
  const auto& options = test["options"];
  if (kind == "AdamW" || kind == "Adam") {
    const bool is_torch_adamw = test["source"] == "torch.optim.AdamW";
    return std::make_unique<AdamW>(model, adam_options(options, is_torch_adamw, kind == "AdamW"));
  }
  if (kind == "SGD") return std::make_unique<Sgd>(model, sgd_options(options));
  if (kind == "Adagrad") return std::make_unique<Adagrad>(model, adagrad_options(options));
  if (kind == "Lion") return std::make_unique<Lion>(model, lion_options(options));
  if (kind == "Lamb") return std::make_unique<Lamb>(model, lamb_options(options));
  fail("no optimizer '{}'", kind);
}

void expect_trajectory(const Json& table, const Json& test) {
  Pair model;
  {
    at::NoGradGuard no_grad;
    const auto initial = values_of(table["initial"]);
    model->weight.view({35}).copy_(initial.narrow(0, 0, 35));
    model->bias.copy_(initial.narrow(0, 35, 19));
  }
  auto sharded = shard(model, World::single());
  const auto optimizer = make(test, sharded);
  int step = 0;
  for (const auto& gradients : table["gradients"]) {
    model(values_of(gradients)).backward();
    optimizer->step();
    optimizer->zero_grad();
    const auto key = std::to_string(++step);
    if (!test["steps"].contains(key)) continue;
    const auto expected = values_of(test["steps"][key]);
    const auto actual =
        at::cat({model->weight.detach().view({35}), model->bias.detach().view({19})});
    const auto error = ((actual - expected).abs() / (expected.abs() + 0.1)).max().item<double>();
    EXPECT_LT(error, 1e-6) << test["source"] << " " << test["options"] << ", step " << step;
  }
}

TEST(Trajectories, EqualTorchsAndDeepSpeeds) {
  std::ifstream file(FULLSHARD_SOURCE_DIR "/tests/fixtures/optimizers/trajectories.json");
  const auto table = Json::parse(file);
  ASSERT_EQ(table["cases"].size(), 18);
  for (const auto& test : table["cases"]) expect_trajectory(table, test);
}

TEST(Defaults, AreThoseOfTheTrainerAndOfDeepSpeed) {
  const auto trainer = trainer_adamw_defaults();
  EXPECT_EQ(trainer.lr, 5e-5);
  EXPECT_EQ(trainer.weight_decay, 0);
  const auto adam = deepspeed_adam_defaults();
  EXPECT_EQ(adam.lr, 1e-3);
  EXPECT_EQ(adam.weight_decay, 0);
  EXPECT_TRUE(adam.adam_w_mode);
  EXPECT_FALSE(torch_adam_defaults().adam_w_mode);
  EXPECT_EQ(deepspeed_adagrad_defaults().epsilon, 1e-10);
  EXPECT_EQ(deepspeed_lamb_defaults().max_coeff, 10);
  EXPECT_EQ(deepspeed_lamb_defaults().min_coeff, 0.01);
  EXPECT_EQ(deepspeed_lion_defaults().beta2, 0.999);
}

}  // namespace
}  // namespace fullshard::optim
