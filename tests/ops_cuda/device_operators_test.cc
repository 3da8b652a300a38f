// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/device_operators.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <tuple>

#include "tests/errors.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

class DeviceProduct : public OnDevice {};
class DeviceColumnSums : public OnDevice {};
class DeviceActivation : public OnDevice {};
class DeviceRotary : public OnDevice {};

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

TEST_F(DeviceProduct, TakesEveryLayoutOfItsOperands) {
  for (const auto dtype : kDeviceDtypes) {
    for (const auto& [m, k, n] : {std::tuple<int64_t, int64_t, int64_t>{64, 128, 96},
                                  {5, 7, 3},
                                  {1, 33, 1},
                                  {130, 1, 17},
                                  {200, 50257, 8}}) {
      SCOPED_TRACE(::testing::Message() << m << " " << k << " " << n << " " << dtype);
      const auto left = device_randn({m, k}, dtype), right = device_randn({k, n}, dtype);
      const auto expected = wide(left).mm(wide(right));
      const auto left_turned = left.t().contiguous().t(), right_turned = right.t().contiguous().t();
      const auto left_spread = at::cat({left, left}, 1).narrow(1, 0, k);
      for (const auto& own_left : {left, left_turned, left_spread}) {
        for (const auto& own_right : {right, right_turned}) {
          const auto output = at::empty({m, n}, left.options());
          device_product(output, own_left, own_right);
          expect_close(output, expected, tolerance_of(dtype), "product");
        }
      }
    }
  }
}

TEST_F(DeviceProduct, AddsInFp32UnderOperandsOfBf16) {
  const auto left = device_randn({300, 64}, at::kBFloat16).t();
  const auto right = device_randn({300, 48}, at::kBFloat16);
  const auto before = device_randn({64, 48});
  const auto expected = wide(left).mm(wide(right));
  auto output = before.clone();
  device_product(output, left, right, /*accumulate=*/true);
  expect_close(output, expected + wide(before), 1e-6, "added");
  device_product(output, left, right);
  expect_close(output, expected, 1e-6, "written");
}

TEST_F(DeviceProduct, WritesBetweenTheRowsOfAWiderMatrix) {
  const auto left = device_randn({40, 24}, at::kBFloat16);
  const auto right = device_randn({24, 16}, at::kBFloat16);
  const auto whole = at::zeros({40, 48}, left.options());
  device_product(whole.narrow(1, 16, 16), left, right);
  expect_close(whole.narrow(1, 16, 16), wide(left).mm(wide(right)), 1e-2, "the middle");
  EXPECT_TRUE(at::equal(whole.narrow(1, 0, 16), at::zeros({40, 16}, left.options())));
  EXPECT_TRUE(at::equal(whole.narrow(1, 32, 16), at::zeros({40, 16}, left.options())));
}

// As for the logits of odd vocabularies: rows begin at packs of 16 bytes and end within one. What
// lies behind them is NaN, which would be seen in every sum.
at::Tensor rows_with_room(int64_t rows, int64_t width) {
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  return at::full({rows, (width + 63) / 64 * 64}, NAN, options);
}

TEST_F(DeviceProduct, TakesRowsThatEndWithinAPack) {
  for (const int64_t vocabulary : {30'522, 1001, 1004, 1015, 515, 9}) {
    SCOPED_TRACE(vocabulary);
    const int64_t rows = 300, width = 64;
    const auto hidden = device_randn({rows, width}, at::kBFloat16);
    const auto weight = device_randn({vocabulary, width}, at::kBFloat16);
    const auto bias = device_randn({vocabulary}, at::kBFloat16);
    const auto whole = rows_with_room(rows, vocabulary);
    const auto logits = whole.narrow(1, 0, vocabulary);
    const auto expected = wide(hidden).mm(wide(weight).t());
    device_product_plus(logits, hidden, weight.t(), bias, {});
    expect_close(logits, expected + wide(bias), tolerance_of(at::kBFloat16), "with a bias");
    device_product(logits, hidden, weight.t());
    expect_close(logits, expected, tolerance_of(at::kBFloat16), "without");
    const auto behind = whole.narrow(1, vocabulary, whole.size(1) - vocabulary);
    EXPECT_TRUE(behind.isnan().all().item<bool>()) << "something was written behind the rows";
    const auto to_hidden = at::empty_like(hidden);
    device_product(to_hidden, logits, weight);
    expect_close(to_hidden, wide(logits).mm(wide(weight)), tolerance_of(at::kBFloat16), "summed");
    const auto to_weight = at::empty({vocabulary, width}, hidden.options().dtype(at::kFloat));
    const auto summed = wide(logits).t().mm(wide(hidden));
    device_product(to_weight, logits.t(), hidden);
    expect_close(to_weight, summed, 1e-5, "turned");
    device_product(to_weight, logits.t(), hidden, /*accumulate=*/true);
    expect_close(to_weight, summed * 2, 1e-5, "turned and added");
  }
}

TEST_F(DeviceProduct, OfNothingIsZeroOrWhatWasThere) {
  const auto left = device_randn({4, 0}, at::kBFloat16),
             right = device_randn({0, 3}, at::kBFloat16);
  const auto output = device_randn({4, 3});
  const auto before = output.clone();
  device_product(output, left, right, /*accumulate=*/true);
  EXPECT_TRUE(at::equal(output, before));
  device_product(output, left, right);
  EXPECT_TRUE(at::equal(output, at::zeros({4, 3}, output.options())));
}

TEST_F(DeviceProduct, AddsBiasAndAddend) {
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t n : {64, 9}) {
      const auto left = device_randn({70, 32}, dtype), weight = device_randn({n, 32}, dtype);
      const auto bias = device_randn({n}, dtype), addend = device_randn({70, n}, dtype);
      const auto product = wide(left).mm(wide(weight).t());
      const auto output = at::empty({70, n}, left.options());
      device_product_plus(output, left, weight.t(), bias, addend);
      expect_close(output, product + wide(bias) + wide(addend), tolerance_of(dtype), "both");
      device_product_plus(output, left, weight.t(), bias, {});
      expect_close(output, product + wide(bias), tolerance_of(dtype), "bias");
      device_product_plus(output, left, weight.t(), {}, addend);
      expect_close(output, product + wide(addend), tolerance_of(dtype), "addend");
    }
  }
}

TEST_F(DeviceColumnSums, AreExactEnoughAndTheSameEveryTime) {
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t width : {1, 3, 8, 768, 2305, 12288}) {
      for (const int64_t rows : {1, 31, 1000, 9001}) {
        if (rows * width > 30'000'000) continue;
        SCOPED_TRACE(::testing::Message() << rows << " rows of " << width << " " << dtype);
        // Of one sign: what cancels would leave only the rounding to compare.
        const auto matrix = device_randn({rows, width}, dtype).abs();
        const auto first = device_randn({width}).abs(), second = first.clone();
        const auto expected = wide(first) + wide(matrix).sum(0);
        device_column_sums({first, true}, matrix);
        device_column_sums({second, true}, matrix);
        expect_close(first, expected, 1e-5, "added");
        EXPECT_TRUE(at::equal(first, second));
        device_column_sums({first, false}, matrix);
        expect_close(first, wide(matrix).sum(0), 1e-5, "written");
      }
    }
  }
  const auto matrix = device_randn({100, 64}, at::kBFloat16);
  const auto sums = device_randn({20});
  device_column_sums({sums, false}, matrix.narrow(1, 7, 20));
  expect_close(sums, wide(matrix.narrow(1, 7, 20)).sum(0), 1e-5, "a part of wider rows");
}

TEST_F(DeviceColumnSums, OfRowsThatEndWithinAPackAreThoseOfTheRows) {
  for (const int64_t width : {30'522, 1001, 15, 9, 7}) {
    SCOPED_TRACE(width);
    const auto rows = rows_with_room(300, width).narrow(1, 0, width);
    rows.copy_(device_randn({300, width}).abs());
    const auto sums = device_randn({width}).abs();
    const auto before = wide(sums);
    device_column_sums({sums, true}, rows);
    expect_close(sums, before + wide(rows).sum(0), 1e-5, "added");
    device_column_sums({sums, false}, rows);
    expect_close(sums, wide(rows).sum(0), 1e-5, "written");
  }
}

TEST_F(DeviceActivation, EqualsTheWideExpressionWithItsGradient) {
  for (const auto dtype : kDeviceDtypes) {
    for (const auto kind :
         {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu}) {
      for (const int64_t width : {1, 13, 64, 3072}) {
        for (const bool is_gated : {false, true}) {
          SCOPED_TRACE(::testing::Message() << static_cast<int>(kind) << " width " << width
                                            << (is_gated ? " gated " : " ") << dtype);
          const auto input = device_randn({50, is_gated ? 2 * width : width}, dtype) * 2;
          const auto gradient = device_randn({50, width}, dtype);
          auto exact = wide(input).requires_grad_();
          const auto halves = exact.chunk(2, -1);
          const auto expected =
              is_gated ? gated(halves[0], halves[1], kind) : activate(exact, kind);
          const auto expected_gradient =
              torch::autograd::grad({expected}, {exact}, {wide(gradient)})[0];
          const auto output = at::empty({50, width}, input.options());
          device_activate(output, input, kind);
          expect_close(output, expected, tolerance_of(dtype), "forward");
          const auto to_input = at::empty(input.sizes(), input.options());
          const auto in_place = gradient.clone();
          device_activate_gradient(to_input, in_place, in_place, input, kind);
          expect_close(to_input, expected_gradient, tolerance_of(dtype), "backward");
          EXPECT_TRUE(at::equal(in_place, output)) << "the results once more";
        }
      }
    }
  }
}

TEST_F(DeviceRotary, EqualsTheCpu) {
  for (const int64_t head : {2, 6, 64, 128}) {
    const auto table = make_rotary_table(at::randn({head / 2}).abs(), 40);
    const RotaryTable on_device{table.cos.to(at::kCUDA), table.sin.to(at::kCUDA)};
    const auto positions = (at::arange(2 * 17) % 40).view({2, 17});
    for (const auto& places : {at::Tensor(), positions}) {
      auto input = at::randn({2, 17, 3, head}).requires_grad_();
      auto copy = input.detach().to(at::kCUDA).requires_grad_();
      const auto factors = at::randn(input.sizes());
      const auto expected = apply_rotary(input, table, places);
      const auto found =
          apply_rotary(copy, on_device, places.defined() ? places.to(at::kCUDA) : places);
      expect_close(found, expected, 1e-6, "forward");
      expect_close(torch::autograd::grad({weighted(found, factors.to(at::kCUDA))}, {copy})[0],
                   torch::autograd::grad({weighted(expected, factors)}, {input})[0], 1e-6,
                   "backward");
    }
  }
}

// The host does not look at positions of a device: a row that the table has not is no number.
TEST_F(DeviceRotary, GivesNanWhereTheTableEnds) {
  const auto table = make_rotary_table(device_randn({32}).abs(), 8);
  const auto input = device_randn({1, 3, 2, 64});
  const auto places = at::tensor({7, 8, -1}, at::kLong).view({1, 3}).to(at::kCUDA);
  const auto turned = apply_rotary(input, table, places).cpu();
  EXPECT_FALSE(turned[0][0].isnan().any().item<bool>());
  EXPECT_TRUE(turned[0].narrow(0, 1, 2).isnan().all().item<bool>());
}

TEST_F(DeviceRotary, RefusesPositionsOfTheHost) {
  const auto table = make_rotary_table(device_randn({32}), 8);
  EXPECT_EQ(testing::message_of([&] {
              apply_rotary(device_randn({1, 3, 2, 64}), table, at::zeros({1, 3}, at::kLong));
            }),
            "apply_rotary: positions lie on cpu, the input on cuda:0; move the positions there "
            "first");
}

TEST_F(DeviceRotary, PacksGradientsTurnedBack) {
  for (const int64_t head : {6, 64}) {
    const auto table = make_rotary_table(device_randn({head / 2}), 9);
    const auto query = device_randn({2, 9, 4, head}), key = device_randn({2, 9, 2, head});
    const auto value = device_randn({2, 9, 2, head});
    const auto rows = at::empty({2, 9, 8 * head}, query.options());
    device_pack_heads(rows, query, key, value, &table, {});
    auto back = rows.clone();
    device_rotate(back, 6, table, {}, 1);
    expect_close(back, at::cat({query.flatten(2), key.flatten(2), value.flatten(2)}, -1), 1e-6,
                 "turned forth again");
    EXPECT_TRUE(at::equal(rows.narrow(2, 6 * head, 2 * head), value.flatten(2)));
    device_pack_heads(rows, query, key, value, nullptr, {});
    EXPECT_TRUE(at::equal(rows, at::cat({query.flatten(2), key.flatten(2), value.flatten(2)}, -1)));
  }
}

}  // namespace
}  // namespace fullshard::ops
