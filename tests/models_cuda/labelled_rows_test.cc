// SPDX-License-Identifier: Apache-2.0
// A head that looks at the rows with labels only, against one that looks at all of them.
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "fullshard/models/common/head.h"
#include "fullshard/models/common/inputs.h"

namespace fullshard::models {
namespace {

struct HeadStep {
  at::Tensor loss, to_hidden, to_weight;
};

HeadStep head_step(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                   int64_t num_labels) {
  const auto states = hidden.detach().clone().requires_grad_(true);
  const auto matrix = weight.detach().clone().requires_grad_(true);
  ModelInputs inputs;
  inputs.num_labels = num_labels;
  const auto loss = head_outputs(states, Head{matrix}, labels, inputs).loss;
  loss.backward();
  return {loss.detach(), states.grad(), matrix.grad()};
}

double largest_of(const at::Tensor& values) { return values.abs().max().item<double>(); }

TEST(LabelledRows, GiveTheLossAndGradientsOfAllRows) {
  at::manual_seed(3);
  const auto options = at::TensorOptions().device(at::kCUDA);
  const auto hidden = at::randn({16, 512, 64}, options), weight = at::randn({1000, 64}, options);
  for (const int64_t every : {3, 7, 8192}) {
    auto labels = at::full({16, 512}, kNoLabel, options.dtype(at::kLong));
    const int64_t count = (16 * 512 + every - 1) / every;
    labels.view(-1)
        .slice(0, 0, std::nullopt, every)
        .copy_(at::randint(0, 1000, {count}, options.dtype(at::kLong)));
    ASSERT_TRUE(takes_labelled_rows(labels, count));
    const auto all = head_step(hidden, weight, labels, -1);
    const auto some = head_step(hidden, weight, labels, count);
    EXPECT_NEAR(some.loss.item<double>(), all.loss.item<double>(), 1e-5 * largest_of(all.loss));
    EXPECT_LE(largest_of(some.to_hidden - all.to_hidden), 1e-5 * largest_of(all.to_hidden));
    EXPECT_LE(largest_of(some.to_weight - all.to_weight), 1e-5 * largest_of(all.to_weight));
  }
}

TEST(LabelledRows, AreNotTakenWhereMostHaveALabelOrNobodyKnows) {
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kLong);
  const auto many = at::full({16, 512}, 1, options);
  EXPECT_FALSE(takes_labelled_rows(many, -1));
  EXPECT_FALSE(takes_labelled_rows(many, 16 * 512 * 3 / 4 + 1));
  EXPECT_FALSE(takes_labelled_rows(many.cpu(), 100));
  EXPECT_FALSE(takes_labelled_rows(at::full({4, 512}, 1, options), 100)) << "a graph is worth more";
  EXPECT_FALSE(takes_labelled_rows({}, 0));
}

TEST(LabelledRows, WithoutAnyLabelTheLossIsZero) {
  const auto options = at::TensorOptions().device(at::kCUDA);
  const auto labels = at::full({16, 512}, kNoLabel, options.dtype(at::kLong));
  const auto step =
      head_step(at::randn({16, 512, 64}, options), at::randn({1000, 64}, options), labels, 0);
  EXPECT_EQ(step.loss.item<double>(), 0);
  EXPECT_EQ(largest_of(step.to_hidden), 0);
}

}  // namespace
}  // namespace fullshard::models
