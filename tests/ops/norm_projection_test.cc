// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/norm_projection.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>

#include "fullshard/base/error.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/linear.h"
#include "tests/ops/gradients.h"

namespace fullshard::ops {
namespace {

constexpr double kNormEpsilon = 1e-5;

// Input, norm's weight and bias, two weights, two biases.
Inputs random_inputs() {
  return {at::randn({2, 3, 8}), at::randn({8}), at::randn({8}), at::randn({5, 8}),
          at::randn({4, 8}),    at::randn({5}), at::randn({4})};
}

NormTerms norm_of(const Inputs& in, bool centred) {
  return {in[1], centred ? in[2] : at::Tensor(), kNormEpsilon, centred};
}

void expect_equal(const Outcome& found, const Outcome& wanted) {
  EXPECT_TRUE(at::equal(found.output, wanted.output));
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    EXPECT_TRUE(at::equal(found.gradients[i], wanted.gradients[i])) << "gradient of input " << i;
  }
}

TEST(NormProjection, IsNormAndLinearToTheBitOnTheCpu) {
  for (const bool centred : {true, false}) {
    const auto own = [&](const Inputs& in) {
      const auto made =
          norm_projection(in[0], norm_of(in, centred), {in[3], in[4]}, {in[5], in[6]});
      EXPECT_FALSE(made.projected.packed.defined());
      EXPECT_TRUE(made.residual.is_same(in[0]));
      const auto& parts = made.projected.parts;
      // Both residual and norm give the input a gradient; the bias of the norm is used either way.
      return parts[0].sum(-1, true) * in[2].sum() + parts[1].sum(-1, true) + made.residual;
    };
    const auto composed = [&](const Inputs& in) {
      const auto normalised = centred ? layer_norm(in[0], in[1], in[2], kNormEpsilon)
                                      : rms_norm(in[0], in[1], kNormEpsilon);
      return fullshard::linear(normalised, in[3], in[5]).sum(-1, true) * in[2].sum() +
             fullshard::linear(normalised, in[4], in[6]).sum(-1, true) + in[0];
    };
    const auto inputs = leaves(random_inputs(), at::kFloat);
    const auto factors = at::randn({2, 3, 8});
    expect_equal(run_operator(own, inputs, factors), run_operator(composed, inputs, factors));
  }
}

TEST(NormProjection, TakesNoBiasesAtAll) {
  const auto in = random_inputs();
  const auto made = norm_projection(in[0], norm_of(in, false), {in[3]});
  EXPECT_TRUE(at::equal(made.projected.parts[0],
                        fullshard::linear(rms_norm(in[0], in[1], kNormEpsilon), in[3])));
}

TEST(NormProjection, NamesHowManyWeightsAndBiasesItGot) {
  const auto in = random_inputs();
  EXPECT_THAT(
      [&] {
        norm_projection(in[0], norm_of(in, true), {in[3]}, {in[5], in[6]});
      },
      ::testing::ThrowsMessage<Error>(
          "norm_projection: 1 weights and 2 biases; give at least one weight, and a bias "
          "(defined or not) for each or none at all"));
  EXPECT_THAT([&] { norm_projection(in[0], norm_of(in, true), std::vector<at::Tensor>()); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("0 weights and 0 biases")));
}

TEST(LinearWithResidual, AddsWhatItIsGiven) {
  const auto own = [](const Inputs& in) { return fullshard::linear(in[0], in[1], in[2], in[3]); };
  const auto composed = [](const Inputs& in) {
    return in[3] + fullshard::linear(in[0], in[1], in[2]);
  };
  const auto inputs = leaves(
      {at::randn({2, 3, 8}), at::randn({5, 8}), at::randn({5}), at::randn({2, 3, 5})}, at::kFloat);
  const auto factors = at::randn({2, 3, 5});
  expect_equal(run_operator(own, inputs, factors), run_operator(composed, inputs, factors));
  EXPECT_TRUE(at::equal(fullshard::linear(inputs[0], inputs[1], {}, {}),
                        fullshard::linear(inputs[0], inputs[1])));
}

// Input of 5 or 10, weight, bias, residual.
Inputs feed_forward_inputs(int64_t width) {
  return leaves({at::randn({2, 3, width}), at::randn({4, 5}), at::randn({4}), at::randn({2, 3, 4})},
                at::kFloat);
}

TEST(ActivatedProjection, IsActivationAndLinearToTheBitOnTheCpu) {
  for (const auto kind :
       {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu}) {
    const auto own = [&](const Inputs& in) {
      return activated_projection({.parts = {in[0]}}, kind, in[1], in[2], in[3]);
    };
    const auto composed = [&](const Inputs& in) {
      return in[3] + fullshard::linear(activate(in[0], kind), in[1], in[2]);
    };
    const auto inputs = feed_forward_inputs(5);
    const auto factors = at::randn({2, 3, 4});
    expect_equal(run_operator(own, inputs, factors), run_operator(composed, inputs, factors));
  }
}

TEST(ActivatedProjection, GatesInputsOfTwiceTheWidth) {
  const auto inputs = feed_forward_inputs(10);
  const auto halves = inputs[0].chunk(2, -1);
  const auto expected = fullshard::linear(swiglu(halves[0], halves[1]), inputs[1]);
  EXPECT_TRUE(at::equal(activated_projection({.packed = inputs[0]}, Activation::silu, inputs[1]),
                        expected));
  EXPECT_TRUE(at::equal(
      activated_projection({.parts = {halves[0], halves[1]}}, Activation::silu, inputs[1]),
      expected));
}

TEST(ActivatedProjection, NamesAWidthThatDoesNotFit) {
  const auto inputs = feed_forward_inputs(7);
  EXPECT_THAT(
      [&] { activated_projection({.packed = inputs[0]}, Activation::relu, inputs[1]); },
      ::testing::ThrowsMessage<Error>("activated_projection: the input has width 7, the weight "
                                      "takes 5; expected that, or twice that for gate and up"));
}

}  // namespace
}  // namespace fullshard::ops
