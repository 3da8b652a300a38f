// SPDX-License-Identifier: Apache-2.0
// A frozen weight with a low-rank part beside it: values, gradients, and what is kept for them.
#include "fullshard/ops/products/low_rank.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <cmath>
#include <limits>

#include "fullshard/base/error.h"
#include "fullshard/nn/deferred.h"
#include "fullshard/ops/activation.h"
#include "fullshard/ops/decoding/few_rows.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/int8_rows.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/ops/products/norm_projection.h"

namespace fullshard::ops {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kSeen = 5, kInputs = 7, kOutputs = 6, kRank = 2;

LinearTerms adapted_terms(double dropout = 0) {
  return {.weight = at::randn({kOutputs, kInputs}),
          .bias = at::randn({kOutputs}),
          .low_rank = {.a = at::randn({kRank, kInputs}).requires_grad_(),
                       .b = at::randn({kOutputs, kRank}).requires_grad_(),
                       .scale = 0.5,
                       .dropout = dropout}};
}

at::Tensor expected_of(const at::Tensor& input, const LinearTerms& terms) {
  const auto& part = terms.low_rank;
  return at::linear(input, terms.weight, terms.bias) +
         part.scale * input.matmul(part.a.t()).matmul(part.b.t());
}

bool keeps(const at::Tensor& input, const LinearTerms& terms) {
  const auto before = input.use_count();
  const auto output = linear(input, terms);
  return input.use_count() > before;
}

TEST(LowRank, PlainTermsAreTheLayerAsItWas) {
  const auto input = at::randn({kSeen, kInputs}).requires_grad_();
  const LinearTerms terms{.weight = at::randn({kOutputs, kInputs}).requires_grad_(),
                          .bias = at::randn({kOutputs})};
  const auto residual = at::randn({kSeen, kOutputs});
  const auto by_terms = linear(input, terms, residual);
  const auto plain = linear(input, terms.weight, terms.bias, residual);
  EXPECT_TRUE(at::equal(by_terms, plain));
  EXPECT_EQ(by_terms.grad_fn()->name(), plain.grad_fn()->name());
  EXPECT_EQ(linear(input, terms).grad_fn()->name(),
            linear(input, terms.weight, terms.bias).grad_fn()->name());
}

TEST(LowRank, IsAddedToWhatTheWeightMakes) {
  const auto input = at::randn({2, kSeen, kInputs});
  const auto terms = adapted_terms();
  const auto residual = at::randn({2, kSeen, kOutputs});
  EXPECT_TRUE(at::allclose(linear(input, terms), expected_of(input, terms), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(linear(input, terms, residual), residual + expected_of(input, terms),
                           1e-5, 1e-6));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::allclose(few_rows_linear(input, terms, residual),
                           residual + expected_of(input, terms), 1e-5, 1e-6));
}

TEST(LowRank, HasTheGradientsOfItsFormula) {
  const auto terms = adapted_terms();
  const auto factors = at::randn({kSeen, kOutputs});
  const auto gradients_of = [&](const auto& function) {
    const auto input = at::ones({kSeen, kInputs}).div_(3).requires_grad_();
    for (const auto& part : {terms.low_rank.a, terms.low_rank.b}) part.mutable_grad().reset();
    (function(input) * factors).sum().backward();
    return std::vector{input.grad(), terms.low_rank.a.grad(), terms.low_rank.b.grad()};
  };
  const auto found = gradients_of([&](const at::Tensor& input) { return linear(input, terms); });
  const auto expected =
      gradients_of([&](const at::Tensor& input) { return expected_of(input, terms); });
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-5, 1e-6)) << i;
  }
  EXPECT_FALSE(terms.weight.grad().defined());
}

// A frozen weight's gradient would be the only one to ask for the input.
TEST(LowRank, KeepsTheInputForTheAdapterOnly) {
  const auto leaf = at::randn({kSeen, kInputs}).requires_grad_();
  LinearTerms terms = adapted_terms();
  EXPECT_TRUE(keeps(leaf + 0, terms));
  terms.low_rank = {};
  EXPECT_FALSE(keeps(leaf + 0, terms));
  const auto rows = int8_rows(terms.weight);
  EXPECT_FALSE(keeps(leaf + 0, {.weight = rows.values, .row_scales = rows.scales}));
}

TEST(LowRank, GoesThroughOperatorsOfSeveralLayers) {
  const auto input = at::randn({2, kSeen, kInputs});
  const auto norm_weight = at::randn({kInputs});
  const NormTerms norm{.weight = norm_weight, .epsilon = 1e-5};
  const auto normalised = apply_norm(input, norm);
  const std::vector<LinearTerms> layers = {adapted_terms(),
                                           {.weight = at::randn({kOutputs, kInputs})}};
  const LinearTerms down{
      .weight = at::randn({kInputs, kOutputs}),
      .low_rank = {
          .a = at::randn({kRank, kOutputs}), .b = at::randn({kInputs, kRank}), .scale = 2}};
  const auto gate = expected_of(normalised, layers[0]);
  const auto up = at::linear(normalised, layers[1].weight);
  const auto inner = gated(gate, up, Activation::silu);
  const auto expected = input + at::linear(inner, down.weight) +
                        2 * inner.matmul(down.low_rank.a.t()).matmul(down.low_rank.b.t());

  const auto rows = norm_projection(input, norm, layers);
  ASSERT_EQ(rows.projected.parts.size(), 2);
  EXPECT_TRUE(at::allclose(rows.projected.parts[0], gate, 1e-5, 1e-5));
  EXPECT_TRUE(
      at::allclose(activated_projection(rows.projected, Activation::silu, down, rows.residual),
                   expected, 1e-4, 1e-4));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::allclose(
      few_rows_feed_forward(input, norm,
                            {.inner = layers, .activation = Activation::silu, .outer = down}),
      expected, 1e-4, 1e-4));
}

TEST(LowRank, DropsRowsInTrainingOnly) {
  Linear layer(kInputs, kOutputs);
  const auto input = at::randn({kSeen, kInputs});
  const auto before = layer(input);
  layer->adapt({.rank = kRank, .scale = 3, .dropout = 0.5});
  EXPECT_TRUE(at::equal(layer(input), before));  // B is zeros
  {
    const at::NoGradGuard no_grad;
    layer->terms().low_rank.b.fill_(1);
  }
  layer->eval();
  EXPECT_EQ(layer->terms().low_rank.dropout, 0);
  EXPECT_TRUE(at::allclose(layer(input), expected_of(input, layer->terms()), 1e-5, 1e-6));
  layer->train();
  EXPECT_EQ(layer->terms().low_rank.dropout, 0.5);
  EXPECT_FALSE(at::allclose(layer(input), expected_of(input, layer->terms())));
}

TEST(LowRank, BeginsAsPeftDrawsIt) {
  Linear layer(1000, 10);
  layer->adapt({.rank = 50});
  const auto terms = layer->terms();
  const double bound = 1 / std::sqrt(1000.0);
  EXPECT_LE(terms.low_rank.a.abs().max().item<double>(), bound);
  EXPECT_NEAR(terms.low_rank.a.std().item<double>(), bound / std::sqrt(3.0), 0.01 * bound);
  EXPECT_TRUE(at::equal(terms.low_rank.b, at::zeros({10, 50})));
  EXPECT_EQ(layer->named_parameters().keys(),
            (std::vector<std::string>{"weight", "bias", "lora_A.weight", "lora_B.weight"}));
}

TEST(LowRank, SaysWhatCannotBe) {
  Linear layer(2, 2);
  EXPECT_THAT([&] { layer->adapt({.rank = 0}); },
              ThrowsMessage<Error>(HasSubstr("rank 0, expected at least 1")));
  layer->adapt({.rank = 1});
  EXPECT_THAT([&] { layer->adapt({.rank = 1}); },
              ThrowsMessage<Error>(HasSubstr("has an adapter already")));
}

TEST(Int8Rows, AreWithinHalfAStepOfTheirRow) {
  const auto matrix = at::randn({8, 100}) * at::randn({8, 1}).exp();
  const auto rows = int8_rows(matrix);
  EXPECT_EQ(rows.values.scalar_type(), at::kChar);
  EXPECT_TRUE(at::allclose(rows.scales, matrix.abs().amax(1) / 127));
  const auto error = (widened_rows(rows.values, rows.scales, at::kFloat) - matrix).abs();
  EXPECT_TRUE((error <= rows.scales.unsqueeze(1) * 0.5001).all().item<bool>());
  EXPECT_EQ(rows.values.abs().max().item<int64_t>(), 127);
}

TEST(Int8Rows, OfZerosAreZerosAndOfNanAnError) {
  const auto rows = int8_rows(at::zeros({2, 3}));
  EXPECT_TRUE(at::equal(widened_rows(rows.values, rows.scales, at::kFloat), at::zeros({2, 3})));
  auto broken = at::ones({2, 3});
  broken[1][2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT([&] { int8_rows(broken); }, ThrowsMessage<Error>(HasSubstr("infinite or NaN")));
}

TEST(Int8Rows, MultiplyAsTheWidenedWeightDoes) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto rows = int8_rows(at::randn({kOutputs, kInputs}));
    const auto wide = widened_rows(rows.values, rows.scales, dtype);
    const auto bias = at::randn({kOutputs}).to(dtype);
    const auto residual = at::randn({kSeen, kOutputs}).to(dtype);
    const auto input = at::randn({kSeen, kInputs}).to(dtype).requires_grad_();
    const auto found = int8_linear(input, rows.values, rows.scales, bias, residual);
    EXPECT_TRUE(at::equal(found, residual + at::linear(input, wide, bias)));
    const auto factors = at::randn({kSeen, kOutputs}).to(dtype);
    (found * factors).sum().backward();
    EXPECT_TRUE(at::equal(input.grad(), factors.matmul(wide)));
  }
}

TEST(Int8Rows, ReplaceALayersWeight) {
  Linear layer(kInputs, kOutputs);
  const auto weight = layer->weight.detach().clone();
  const auto input = at::randn({kSeen, kInputs});
  layer->quantise();
  EXPECT_EQ(layer->weight.scalar_type(), at::kChar);
  EXPECT_FALSE(layer->weight.requires_grad());
  EXPECT_EQ(layer->named_parameters().keys(),
            (std::vector<std::string>{"weight", "bias", "weight_scale"}));
  const auto rows = int8_rows(weight);
  EXPECT_TRUE(at::equal(
      layer(input),
      at::linear(input, widened_rows(rows.values, rows.scales, at::kFloat), layer->bias)));
}

TEST(Int8Rows, OfADeferredLayerAreDeferred) {
  Linear layer = nullptr;
  {
    const DeferredScope deferred;
    layer = Linear(kInputs, kOutputs);
  }
  layer->adapt({.rank = kRank});
  layer->quantise();
  for (const auto& item : layer->named_parameters()) {
    EXPECT_TRUE(item.value().is_meta()) << item.key();
  }
  EXPECT_EQ(layer->weight.scalar_type(), at::kChar);
}

}  // namespace
}  // namespace fullshard::ops
