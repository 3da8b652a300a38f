// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/evaluation_scope.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>

#include "fullshard/base/error.h"

namespace fullshard::testing {
namespace {

// A model in training whose dropout is switched off for good.
torch::nn::Sequential make_evaluated_model() {
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::Dropout(0.5));
  model->train();
  model->ptr(1)->eval();
  return model;
}

void expect_as_made(const torch::nn::Sequential& model) {
  EXPECT_TRUE(model->is_training());
  EXPECT_TRUE(model->ptr(0)->is_training());
  EXPECT_FALSE(model->ptr(1)->is_training());
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCUDA));
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
}

TEST(EvaluationScope, IsEvalWithoutGradientsAndPutsEveryModesBack) {
  auto model = make_evaluated_model();
  {
    const EvaluationScope scope(*model);
    EXPECT_FALSE(model->is_training());
    EXPECT_FALSE(model->ptr(0)->is_training());
    const auto y = model->forward(at::ones({2, 4}));
    EXPECT_FALSE(y.requires_grad());
    EXPECT_EQ(y.scalar_type(), at::kFloat);
  }
  expect_as_made(model);
}

TEST(EvaluationScope, ComputesInSixteenBits) {
  auto model = make_evaluated_model();
  const auto x = at::ones({2, 4});
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    {
      const EvaluationScope scope(*model, dtype);
      EXPECT_EQ(model->forward(x).scalar_type(), dtype);
      EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCUDA), dtype);
      // A cache would hold a cast of every parameter that was ever gathered.
      EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
    }
    expect_as_made(model);
    EXPECT_EQ(model->forward(x).scalar_type(), at::kFloat);
  }
}

TEST(EvaluationScope, EndsWithAnException) {
  auto model = make_evaluated_model();
  try {
    const EvaluationScope scope(*model, at::kBFloat16);
    throw std::runtime_error("a bad batch");
  } catch (const std::runtime_error&) {
  }
  expect_as_made(model);
}

TEST(EvaluationScope, KeepsAnOuterScopesSettings) {
  auto model = make_evaluated_model();
  const EvaluationScope outer(*model, at::kHalf);
  {
    const EvaluationScope inner(*model, at::kBFloat16);
    EXPECT_EQ(model->forward(at::ones({2, 4})).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(model->forward(at::ones({2, 4})).scalar_type(), at::kHalf);
  EXPECT_FALSE(model->is_training());
}

TEST(EvaluationScope, RefusesOtherDtypesAndChangesNothing) {
  auto model = make_evaluated_model();
  try {
    const EvaluationScope scope(*model, at::kFloat);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "evaluation: dtype is Float, expected BFloat16 or Half, or none for the model's "
                 "own");
  }
  expect_as_made(model);
}

}  // namespace
}  // namespace fullshard::testing
