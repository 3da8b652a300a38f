// SPDX-License-Identifier: Apache-2.0
// Dropout without masks: what stays in forward stays in backward.
#include "fullshard/ops/dropout.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "fullshard/ops/attention/attention.h"
#include "fullshard/ops/products/activated_projection.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

class DeviceDropout : public OnDevice {};

// The nearest that 16 bits can say, and what stays is scaled by.
struct ExactDropout {
  double probability, scale;
  explicit ExactDropout(double wanted)
      : probability(std::round(wanted * 65536) / 65536), scale(1 / (1 - probability)) {}
};

TEST_F(DeviceDropout, DropsTheShareAskedForAndScalesTheRest) {
  for (const double wanted : {0.1, 0.5, 0.9}) {
    const ExactDropout exact(wanted);
    const auto ones = at::full({1 << 22}, 1.0, at::TensorOptions().device(at::kCUDA));
    const auto found = dropped(ones, wanted);
    const auto stays = found.ne(0);
    const double share = 1 - stays.to(at::kDouble).mean().item<double>();
    const double deviation = std::sqrt(wanted * (1 - wanted) / (1 << 22));
    EXPECT_NEAR(share, exact.probability, 5 * deviation);
    EXPECT_TRUE(at::equal(found, stays * static_cast<float>(exact.scale)));
    // No place is favoured: of every eight elements each has the same chance.
    const auto by_place = stays.view({-1, 8}).to(at::kDouble).mean(0);
    EXPECT_LT((by_place - (1 - exact.probability)).abs().max().item<double>(),
              5 * deviation * std::sqrt(8.0));
  }
}

TEST_F(DeviceDropout, GivesGradientsToWhatStayed) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t width : {7, 12, 768}) {
      const auto values = device_randn({33, width}, dtype).requires_grad_();
      const auto residual = device_randn({33, width}, dtype).requires_grad_();
      const auto factors = device_randn({33, width}, dtype);
      const auto output = dropped(values, 0.3, residual);
      (output * factors).sum().backward();
      const auto scale = ExactDropout(0.3).scale;
      const auto stays = values.grad().ne(0);
      const auto kept = (values.detach().to(at::kDouble) * scale) * stays;
      expect_close(output, residual.detach().to(at::kDouble) + kept, tolerance_of(dtype), "output");
      expect_close(values.grad(), factors.to(at::kDouble) * scale * stays, tolerance_of(dtype),
                   "gradient");
      EXPECT_TRUE(at::equal(residual.grad(), factors));
      const double share = stays.to(at::kDouble).mean().item<double>();
      EXPECT_NEAR(share, 0.7, 5 * std::sqrt(0.21 / static_cast<double>(stays.numel())));
    }
  }
}

TEST_F(DeviceDropout, DrawsTheSameBySeedAndAnewEveryTime) {
  const auto values = bf16_randn({40, 64});
  at::manual_seed(11);
  const auto first = dropped(values, 0.5), second = dropped(values, 0.5);
  at::manual_seed(11);
  EXPECT_TRUE(at::equal(dropped(values, 0.5), first));
  EXPECT_TRUE(at::equal(dropped(values, 0.5), second));
  EXPECT_FALSE(at::equal(first, second));
}

// The same elements in the activated values of forward, their gradient, and the weight's gradient.
TEST_F(DeviceDropout, OfActivatedValuesIsOneDropout) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool is_gated : {false, true}) {
      for (const int64_t inner : {12, 256}) {
        const auto kind = is_gated ? Activation::silu : Activation::relu;
        const auto input = device_randn({72, is_gated ? 2 * inner : inner}, dtype).requires_grad_();
        const auto weight = device_randn({16, inner}, dtype).requires_grad_();
        const auto factors = device_randn({72, 16}, dtype);
        const auto output = activated_projection({.packed = input}, kind, weight, {}, {},
                                                 ResultUse::values, /*dropout=*/0.4);
        (output * factors).sum().backward();

        // What is dropped has no gradient, nor has a ReLU below zero, whose value is zero as well.
        const auto wide = input.detach().to(at::kDouble);
        const auto halves = wide.chunk(2, -1);
        const auto activated = is_gated ? halves[0] * halves[0].sigmoid() * halves[1] : wide.relu();
        const auto stays = input.grad().chunk(is_gated ? 2 : 1, -1).back().ne(0);
        const auto kept = activated * stays * ExactDropout(0.4).scale;
        const double tolerance = dtype == at::kFloat ? 1e-4 : 3e-2;
        expect_close(output, kept.matmul(weight.detach().to(at::kDouble).t()), tolerance, "output");
        expect_close(weight.grad(), factors.to(at::kDouble).t().matmul(kept), tolerance, "weight");
        const double share = stays.to(at::kDouble).mean().item<double>();
        EXPECT_NEAR(share, is_gated ? 0.6 : 0.3, 0.1);
      }
    }
  }
}

double relative_to(const at::Tensor& found, const at::Tensor& exact) {
  return ((found.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

TEST_F(DeviceDropout, OfAttentionKeepsItsMean) {
  AttentionOptions options;
  const auto query = bf16_randn({2, 128, 4, 64}), key = bf16_randn({2, 128, 4, 64});
  const auto value = bf16_randn({2, 128, 4, 64});
  const auto whole = attention(query, key, value, options).to(at::kDouble);
  options.dropout = 0.1;
  auto sum = at::zeros(whole.sizes(), whole.options());
  constexpr int kDraws = 200;
  for (int i = 0; i < kDraws; ++i) sum += attention(query, key, value, options).to(at::kDouble);
  EXPECT_LT(relative_to(sum / kDraws, whole), 0.1);
  EXPECT_GT(relative_to(attention(query, key, value, options), whole), 0.1);
}

}  // namespace
}  // namespace fullshard::ops
