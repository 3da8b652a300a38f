// SPDX-License-Identifier: Apache-2.0
// Matrices in 8 bits against libtorch's own conversion, and products of them against fp64.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "fullshard/nn/gradient_hook.h"
#include "fullshard/nn/product_precision.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/device_fp8.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/ops/products/norm_projection.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

class DeviceFp8 : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    at::manual_seed(7);
  }
};

struct Converted {
  at::Tensor values;  // as bytes
  float factor = 0;
};

// What libtorch makes of it, with the factor of the largest magnitude.
Converted by_libtorch(const at::Tensor& matrix, Fp8Format format) {
  const float most = format == Fp8Format::e4m3 ? 448.0f : 57344.0f;
  const float largest = matrix.abs().max().to(at::kFloat).item<float>();
  const float multiplier = most / largest;
  const auto dtype = format == Fp8Format::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
  const auto scaled = (matrix.to(at::kFloat) * multiplier).clamp(-most, most);
  return {scaled.to(dtype).view(at::kByte), 1.0f / multiplier};
}

at::Tensor bytes_of(const Fp8Operand& operand) {
  return operand.values.contiguous().view(at::kByte);
}

TEST_F(DeviceFp8, RowsAndTurnedRowsAreThoseOfLibtorch) {
  for (const auto format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 16},
                                      {37, 48},
                                      {128, 64},
                                      {130, 80},
                                      {513, 1040},
                                      {2048, 2048}}) {
      const auto matrix = bf16_randn({rows, width}) * 3;
      const auto wanted = by_libtorch(matrix, format);
      const auto largest = device_largest(matrix);
      EXPECT_EQ(largest.max().item<float>(), matrix.abs().max().to(at::kFloat).item<float>());
      const auto plain = device_fp8_rows(matrix, largest, format);
      const auto turned = device_fp8_turned(matrix, largest, format);
      const auto both = device_fp8_both(matrix, largest, format);
      EXPECT_TRUE(at::equal(bytes_of(plain), wanted.values)) << rows << " x " << width;
      EXPECT_TRUE(at::equal(bytes_of(both.rows), wanted.values)) << rows << " x " << width;
      EXPECT_EQ(plain.factor.item<float>(), wanted.factor);
      EXPECT_EQ(both.turned.factor.item<float>(), wanted.factor);
      EXPECT_EQ(turned.values.size(1), (rows + 15) / 16 * 16);
      for (const auto* one : {&turned, &both.turned}) {
        const auto bytes = bytes_of(*one);
        EXPECT_TRUE(at::equal(bytes.narrow(1, 0, rows), wanted.values.t().contiguous()))
            << rows << " x " << width;
        EXPECT_EQ(bytes.narrow(1, rows, bytes.size(1) - rows).sum().item<int64_t>(), 0);
      }
    }
  }
}

TEST_F(DeviceFp8, WeightsApartAreOneMatrixWithOneFactor) {
  const std::vector<at::Tensor> weights{bf16_randn({64, 96}), bf16_randn({16, 96}) * 5,
                                        bf16_randn({48, 96})};
  const auto whole = at::cat(weights);
  const auto largest = device_largest(weights);
  const auto wanted = by_libtorch(whole, Fp8Format::e4m3);
  EXPECT_TRUE(at::equal(bytes_of(device_fp8_joined_rows(weights, largest)), wanted.values));
  EXPECT_TRUE(at::equal(bytes_of(device_fp8_joined_turned(weights, largest)),
                        wanted.values.t().contiguous()));
}

TEST_F(DeviceFp8, ZerosStayZeroAndWhatIsNotFiniteIsSeenInTheProduct) {
  const auto zeros =
      at::zeros({32, 32}, at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16));
  const auto none = device_fp8_rows(zeros, device_largest(zeros), Fp8Format::e4m3);
  EXPECT_EQ(bytes_of(none).sum().item<int64_t>(), 0);
  EXPECT_EQ(none.factor.item<float>(), 1);
  const auto other = bf16_randn({32, 32});
  const auto right = device_fp8_rows(other, device_largest(other), Fp8Format::e4m3);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto matrix = bf16_randn({32, 32});
    matrix.index_put_({at::indexing::TensorIndex(3), at::indexing::TensorIndex(5)}, bad);
    const auto left = device_fp8_rows(matrix, device_largest(matrix), Fp8Format::e4m3);
    const auto output = at::empty({32, 32}, matrix.options());
    device_fp8_product(output, left, right);
    EXPECT_FALSE(output[3].isfinite().any().item<bool>()) << bad;
  }
}

TEST_F(DeviceFp8, ProductsAddBiasAndAddend) {
  const auto left_values = bf16_randn({70, 128}), right_values = bf16_randn({48, 128});
  const auto left = device_fp8_rows(left_values, device_largest(left_values), Fp8Format::e5m2);
  const auto right = device_fp8_rows(right_values, device_largest(right_values), Fp8Format::e4m3);
  const auto exact = (left.values.to(at::kDouble) * left.factor.to(at::kDouble))
                         .mm((right.values.to(at::kDouble) * right.factor.to(at::kDouble)).t());
  const auto bias = bf16_randn({48}), addend = bf16_randn({70, 48});
  for (const bool sums_fast : {false, true}) {
    const auto narrow = at::empty({70, 48}, addend.options());
    device_fp8_product(narrow, left, right,
                       {.bias = bias, .addend = addend, .sums_fast = sums_fast});
    expect_close(narrow, exact + bias.to(at::kDouble) + addend.to(at::kDouble), 1e-2, "bf16");
    const auto wide = at::full({70, 48}, 2.0, addend.options().dtype(at::kFloat));
    device_fp8_product(wide, left, right, {.accumulate = true, .sums_fast = sums_fast});
    expect_close(wide, exact + 2, sums_fast ? 4e-3 : 1e-3, "fp32");
  }
}

// x, the norm's weight, two weights that read it, one that ends the block.
struct Block {
  std::vector<at::Tensor> leaves;

  static Block random(int64_t rows, int64_t width, int64_t inner) {
    Block block;
    for (auto sizes : std::vector<std::vector<int64_t>>{
             {2, rows, width}, {width}, {inner, width}, {inner, width}, {width, inner}}) {
      block.leaves.push_back(bf16_randn(sizes));
    }
    return block;
  }

  at::Tensor run(const std::vector<at::Tensor>& in) const {
    const auto rows = norm_projection(in[0], {.weight = in[1], .epsilon = 1e-5, .centred = false},
                                      {in[2], in[3]}, {});
    const auto result =
        activated_projection(rows.projected, Activation::silu, in[4], {}, rows.residual);
    return linear(result, in[4].t().contiguous(), {}, {}).sum(-1, true) * 0.01 + result;
  }
};

Outcome run_block(const Block& block, std::vector<at::Tensor> leaves, const at::Tensor& factors,
                  ProductPrecision precision) {
  for (auto& leaf : leaves) leaf = leaf.detach().clone().requires_grad_(true);
  at::Tensor output;
  {
    const nn::ProductPrecisionScope scope(precision);
    output = block.run(leaves);
  }
  // Backward runs outside, and on another thread.
  (output * factors).sum().backward();
  Outcome results{output.detach(), {}};
  for (const auto& leaf : leaves) results.gradients.push_back(leaf.grad());
  return results;
}

// Of the whole: single elements of 3 or 2 bits may be far off.
double relative_error(const at::Tensor& found, const at::Tensor& exact) {
  const auto wanted = exact.to(at::kDouble);
  return ((found.to(at::kDouble) - wanted).norm() / wanted.norm()).item<double>();
}

TEST_F(DeviceFp8, OperatorsRoundOnlyWhatTheyMultiply) {
  const auto block = Block::random(72, 128, 256);
  const auto factors = bf16_randn({2, 72, 128});
  std::vector<at::Tensor> wide;
  for (const auto& leaf : block.leaves) wide.push_back(leaf.to(at::kDouble));
  const auto exact = run_block(block, wide, factors.to(at::kDouble), ProductPrecision::operands);
  const auto plain = run_block(block, block.leaves, factors, ProductPrecision::operands);
  for (const auto precision : {ProductPrecision::fp8, ProductPrecision::fp8_e4m3}) {
    const auto once = run_block(block, block.leaves, factors, precision);
    const auto again = run_block(block, block.leaves, factors, precision);
    EXPECT_FALSE(at::equal(once.output, plain.output)) << "nothing was rounded to 8 bits";
    EXPECT_TRUE(at::equal(once.output, again.output));
    const bool is_hybrid = precision == ProductPrecision::fp8;
    EXPECT_LT(relative_error(once.output, exact.output), 0.08);
    for (size_t i = 0; i < block.leaves.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_TRUE(at::equal(once.gradients[i], again.gradients[i]));
      EXPECT_FALSE(at::equal(once.gradients[i], plain.gradients[i]));
      EXPECT_LT(relative_error(once.gradients[i], exact.gradients[i]), is_hybrid ? 0.2 : 0.15);
    }
  }
}

// Forward is bf16's to the bit, backward is not.
TEST_F(DeviceFp8, WhatAGateLetThroughIsRoundedInBackwardOnly) {
  const auto block = Block::random(72, 128, 256);
  const auto gate_and_up = bf16_randn({72, 512}), factors = bf16_randn({72, 128});
  const auto run = [&](Activation kind, const at::Tensor& given, ProductPrecision precision) {
    std::vector<at::Tensor> leaves{given.detach().clone().requires_grad_(true),
                                   block.leaves[4].detach().clone().requires_grad_(true)};
    at::Tensor output;
    {
      const nn::ProductPrecisionScope scope(precision);
      output = activated_projection({.packed = leaves[0], .parts = {}}, kind, leaves[1], {}, {});
    }
    (output * factors).sum().backward();
    return Outcome{output.detach(), {leaves[0].grad(), leaves[1].grad()}};
  };
  const auto plain = run(Activation::silu, gate_and_up, ProductPrecision::operands);
  const auto rounded = run(Activation::silu, gate_and_up, ProductPrecision::fp8);
  EXPECT_TRUE(at::equal(rounded.output, plain.output));
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    EXPECT_FALSE(at::equal(rounded.gradients[i], plain.gradients[i])) << i;
    EXPECT_LT(relative_error(rounded.gradients[i], plain.gradients[i]), 0.15) << i;
  }
  const auto narrow = gate_and_up.narrow(1, 0, 256).contiguous();
  EXPECT_FALSE(at::equal(run(Activation::gelu, narrow, ProductPrecision::fp8).output,
                         run(Activation::gelu, narrow, ProductPrecision::operands).output));
}

TEST_F(DeviceFp8, KernelsFindTheLargestOfWhatTheyWrite) {
  for (const int64_t width : {40, 768, 2048, 5632}) {
    SCOPED_TRACE(width);
    const auto largest_of = [](const at::Tensor& values) {
      return values.abs().max().to(at::kFloat).item<float>();
    };
    const auto input = bf16_randn({70, width}), gradient = bf16_randn({70, width});
    const auto output = at::empty_like(input), largest = make_largest(input);
    for (const bool centred : {false, true}) {
      const NormTerms terms{bf16_randn({width}), centred ? bf16_randn({width}) : at::Tensor(), 1e-5,
                            centred};
      const auto statistics = device_norm(output, input, terms, largest);
      EXPECT_EQ(largest.max().item<float>(), largest_of(output));
      device_norm_gradient({.input = output, .weight = {}, .bias = {}, .largest = largest},
                           gradient, input, input, terms, statistics);
      EXPECT_EQ(largest.max().item<float>(), largest_of(output));
    }
    device_activate(output, input, Activation::gelu, largest);
    EXPECT_EQ(largest.max().item<float>(), largest_of(output));
    const auto both = bf16_randn({70, 2 * width}), to_both = at::empty_like(both);
    device_activate_gradient(to_both, {}, gradient, both, Activation::silu, largest);
    EXPECT_EQ(largest.max().item<float>(), largest_of(to_both));
  }
}

TEST_F(DeviceFp8, ALargestGoesWithItsGradientUntilThatChanges) {
  const auto gradient = bf16_randn({16, 16}), other = bf16_randn({16, 16});
  const auto largest = make_largest(gradient);
  note_largest(gradient, largest);
  EXPECT_FALSE(noted_largest(other).defined());
  EXPECT_FALSE(noted_largest(gradient).defined()) << "it is asked for once";
  note_largest(gradient, largest);
  EXPECT_TRUE(noted_largest(gradient).is_same(largest));
  note_largest(gradient, largest);
  gradient.add_(other);
  EXPECT_FALSE(noted_largest(gradient).defined());
}

TEST_F(DeviceFp8, OtherSizesStayAsTheyAre) {
  const auto block = Block::random(9, 40, 24);
  const auto factors = bf16_randn({2, 9, 40});
  const auto plain = run_block(block, block.leaves, factors, ProductPrecision::operands);
  const auto asked = run_block(block, block.leaves, factors, ProductPrecision::fp8);
  EXPECT_TRUE(at::equal(plain.output, asked.output));
  for (size_t i = 0; i < block.leaves.size(); ++i) {
    EXPECT_TRUE(at::equal(plain.gradients[i], asked.gradients[i])) << i;
  }
}

TEST_F(DeviceFp8, WeightGradientsGoIntoTheirSinks) {
  const auto input = bf16_randn({40, 64});
  auto weight = bf16_randn({32, 64}).requires_grad_(true);
  const auto gradient = bf16_randn({40, 32});
  const auto run = [&] {
    at::Tensor output;
    {
      const nn::ProductPrecisionScope scope(ProductPrecision::fp8);
      output = linear(input, weight, {}, {});
    }
    output.backward(gradient);
  };
  run();
  const auto returned = weight.grad().clone();
  for (const auto dtype : {at::kBFloat16, at::kFloat, at::kHalf}) {
    weight.mutable_grad() = at::Tensor();
    const auto target = at::full({32, 64}, 1.0, weight.options().dtype(dtype).requires_grad(false));
    nn::set_gradient_sink(weight, [&] { return nn::GradientSink{target, true}; });
    run();
    EXPECT_FALSE(weight.grad().defined());
    expect_close(target, returned.to(at::kDouble) + 1, 1e-2, c10::toString(dtype));
  }
  nn::set_gradient_sink(weight, {});
}

}  // namespace
}  // namespace fullshard::ops
