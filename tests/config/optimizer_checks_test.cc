// SPDX-License-Identifier: Apache-2.0
// Optimizer settings that cannot train are rejected before a run begins, wherever they come from.
#include <gtest/gtest.h>

#include "fullshard/config/plan.h"
#include "tests/errors.h"

namespace fullshard::config {
namespace {

using testing::message_of;

std::string answer_to(const std::string& optimizer) {
  const auto text = fmt::format(R"({{"optimizer": {}}})", optimizer);
  return message_of([&] { Plan::parse(text, "d.json"); });
}

std::string answer_to_betas(const std::string& type, const std::string& betas) {
  return answer_to(fmt::format(R"({{"type": "{}", "params": {{"betas": {}}}}})", type, betas));
}

// With a beta of 1 a mean would never change.
TEST(OptimizerChecks, ABetaOfOneIsRefusedForEveryOptimizerThatHasBetas) {
  const std::string where = "d.json:1: optimizer.params.betas: ";
  for (const char* type : {"Adam", "AdamW", "Lamb", "Lion"}) {
    EXPECT_EQ(answer_to_betas(type, "[1, 0.999]"),
              where + "is [1, 0.999], expected two numbers below 1");
    EXPECT_EQ(answer_to_betas(type, "[0.9, 1.0]"),
              where + "is [0.9, 1], expected two numbers below 1");
    EXPECT_EQ(answer_to_betas(type, "[0, 0.9999999]"), "no error");
  }
}

TEST(OptimizerChecks, ABetaOfOneIsRefusedInFlagsAndInCode) {
  EXPECT_EQ(message_of([] {
              Plan::parse("{}", "d.json", {.overrides = {"optimizer.params.betas=[0.9, 1]"}});
            }),
            "--set: optimizer.params.betas: is [0.9, 1], expected two numbers below 1");
  Plan plan;
  plan.optimizer.betas = std::vector<double>{1, 0.5};
  EXPECT_EQ(message_of([&] { plan.check(1); }),
            "optimizer.betas: is [1, 0.5], expected two numbers below 1");
  plan.optimizer.betas = std::vector<double>{0.5, 0.5};
  EXPECT_EQ(message_of([&] { plan.check(1); }), "no error");
}

TEST(OptimizerChecks, NesterovNeedsAMomentumAndNoDampening) {
  const auto nesterov = [](const std::string& rest) {
    return answer_to(R"({"type": "SGD", "params": {"nesterov": true)" + rest + "}}");
  };
  const std::string refusal =
      "d.json:1: optimizer.params.nesterov: needs momentum, and no dampening";
  EXPECT_EQ(nesterov(""), refusal);
  EXPECT_EQ(nesterov(R"(, "momentum": 0.9, "dampening": 0.5)"), refusal);
  EXPECT_EQ(nesterov(R"(, "momentum": 0.9)"), "no error");
}

TEST(OptimizerChecks, LambsCoefficientsAreOrdered) {
  const auto coefficients = [](const std::string& params) {
    return answer_to(R"({"type": "Lamb", "params": {)" + params + "}}");
  };
  EXPECT_EQ(coefficients(R"("min_coeff": 0.5, "max_coeff": 0.25)"),
            "d.json:1: optimizer.params.min_coeff: is 0.5, but max_coeff is 0.25");
  EXPECT_EQ(coefficients(R"("min_coeff": 0.5, "max_coeff": 0.5)"), "no error");
}

}  // namespace
}  // namespace fullshard::config
