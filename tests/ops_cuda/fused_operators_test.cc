// SPDX-License-Identifier: Apache-2.0
// Operators that keep less, against the same expressions in fp64.
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "fullshard/memory/device_memory.h"
#include "fullshard/nn/gradient_hook.h"
#include "fullshard/ops/attention/self_attention.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/ops/products/norm_projection.h"
#include "fullshard/ops/products/shared_rows.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

class DeviceNormProjection : public OnDevice {};
class DeviceActivatedProjection : public OnDevice {};
class DeviceLinear : public OnDevice {};
class DeviceSharedRows : public OnDevice {};
class DeviceSelfAttention : public OnDevice {};

at::Tensor packed_of(const Projected& projected) {
  return projected.packed.defined() ? projected.packed : at::cat(projected.parts, -1);
}

// Input, norm's weight and bias, then `num` weights and as many biases of 16, 24, .. rows. Both
// results are used.
Operator norm_projected(size_t num, bool centred, bool has_bias) {
  return [=](const Inputs& in) {
    std::vector<at::Tensor> weights(in.begin() + 3, in.begin() + 3 + num), biases;
    if (has_bias) biases.assign(in.begin() + 3 + num, in.end());
    const NormTerms norm{in[1], centred ? in[2] : at::Tensor(), 1e-5, centred};
    const auto made = norm_projection(in[0], norm, weights, biases);
    auto result = at::cat({packed_of(made.projected), made.residual * 2}, -1);
    // Every input is used, so that every gradient is defined.
    for (size_t i = 2; i < in.size(); ++i) result = result + in[i].sum() * 0.01;
    return result;
  };
}

Inputs norm_inputs(size_t num, int64_t width) {
  Inputs inputs{device_randn({3, 50, width}), device_randn({width}), device_randn({width})};
  for (size_t i = 0; i < num; ++i) {
    inputs.push_back(device_randn({16 + 8 * static_cast<int64_t>(i), width}));
  }
  for (size_t i = 0; i < num; ++i) {
    inputs.push_back(device_randn({16 + 8 * static_cast<int64_t>(i)}));
  }
  return inputs;
}

TEST_F(DeviceNormProjection, EqualsTheWideExpression) {
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t width : {13, 64, 768}) {
      for (const size_t num : {1, 3}) {
        for (const bool centred : {true, false}) {
          for (const bool has_bias : {true, false}) {
            SCOPED_TRACE(::testing::Message() << num << " of width " << width << " centred "
                                              << centred << " bias " << has_bias << " " << dtype);
            expect_same_as_wide(norm_projected(num, centred, has_bias), norm_inputs(num, width),
                                dtype, dtype == at::kFloat ? 5e-5 : 2e-2);
          }
        }
      }
    }
  }
}

// Weights side by side in one buffer, sinks side by side in another, as the engine has them.
struct FlatWeights {
  std::vector<int64_t> rows{32, 8, 8};
  at::Tensor buffer, slots;
  std::vector<at::Tensor> weights;
  bool accumulates = false;

  explicit FlatWeights(int64_t width, int64_t gap)
      : buffer(device_randn({48 + 2 * gap, width}, at::kBFloat16)),
        slots(at::zeros({48 + 2 * gap, width}, buffer.options().dtype(at::kFloat))) {
    int64_t first = 0;
    for (const int64_t count : rows) {
      auto weight = buffer.narrow(0, first, count).detach().requires_grad_();
      const auto slot = slots.narrow(0, first, count);
      nn::set_gradient_sink(weight, [this, slot] { return nn::GradientSink{slot, accumulates}; });
      weights.push_back(weight);
      first += count + gap;
    }
  }
};

TEST_F(DeviceNormProjection, TakesOneProductForNeighboursAndFillsTheirSinks) {
  for (const int64_t gap : {0, 1}) {
    FlatWeights flat(64, gap);
    const auto input = device_randn({2, 40, 64}, at::kBFloat16).requires_grad_();
    const auto scale = device_randn({64}, at::kBFloat16).requires_grad_();
    const auto factors = device_randn({2, 40, 48}, at::kBFloat16);
    const auto made = norm_projection(input, {.weight = scale}, flat.weights);
    ASSERT_TRUE(made.projected.packed.defined());
    Inputs exact =
        leaves({input, scale, flat.weights[0], flat.weights[1], flat.weights[2]}, at::kDouble);
    const auto expected = packed_of(
        norm_projection(exact[0], {.weight = exact[1]}, {exact[2], exact[3], exact[4]}).projected);
    expect_close(made.projected.packed, expected, 1e-2, "output");
    const auto wanted = torch::autograd::grad({weighted(expected, factors.to(at::kDouble))}, exact);
    for (int pass = 1; pass <= 2; ++pass) {
      const auto output = norm_projection(input, {.weight = scale}, flat.weights).projected.packed;
      weighted(output, factors).backward();
      flat.accumulates = true;
      int64_t first = 0;
      for (size_t i = 0; i < 3; ++i) {
        expect_close(flat.slots.narrow(0, first, flat.rows[i]), wanted[2 + i] * pass, 1e-2,
                     "sink " + std::to_string(i));
        EXPECT_FALSE(flat.weights[i].grad().defined());
        first += flat.rows[i] + gap;
      }
    }
    expect_close(input.grad(), wanted[0] * 2, 2e-2, "input");
    expect_close(scale.grad(), wanted[1] * 2, 2e-2, "norm");
  }
}

TEST_F(DeviceNormProjection, LeavesFrozenTensorsWithoutGradients) {
  const auto options = at::kBFloat16;
  const auto input = device_randn({4, 64}, options), scale = device_randn({64}, options);
  const auto weight = device_randn({16, 64}, options);
  const auto other = device_randn({8, 64}, options).requires_grad_();
  const auto made = norm_projection(input, {.weight = scale}, {weight, other});
  made.projected.packed.sum().backward();
  EXPECT_TRUE(other.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_FALSE(scale.grad().defined());
  at::NoGradGuard no_grad;
  EXPECT_FALSE(
      norm_projection(input, {.weight = scale}, {weight, other}).projected.packed.requires_grad());
}

TEST_F(DeviceNormProjection, PassesTheResidualsGradientOnAlone) {
  const auto input = device_randn({4, 64}, at::kBFloat16).requires_grad_();
  const auto weight = device_randn({16, 64}, at::kBFloat16).requires_grad_();
  norm_projection(input, {.weight = device_randn({64}, at::kBFloat16)}, {weight})
      .residual.sum()
      .backward();
  EXPECT_TRUE(at::equal(input.grad(), at::ones_like(input)));
  EXPECT_FALSE(weight.grad().defined());
}

int64_t held_bytes() { return memory::device_memory({at::kCUDA, 0}).allocated_bytes; }

TEST_F(DeviceNormProjection, HoldsNothingButItsResultsAndTwoNumbersPerRow) {
  const auto input = device_randn({4096, 512}, at::kBFloat16).requires_grad_();
  const auto scale = device_randn({512}, at::kBFloat16).requires_grad_();
  const auto bias = device_randn({512}, at::kBFloat16).requires_grad_();
  const auto weight = device_randn({256, 512}, at::kBFloat16).requires_grad_();
  const NormTerms norm{scale, bias, 1e-5, true};
  norm_projection(input, norm, {weight}).projected.packed.sum().backward();  // workspaces
  const int64_t before = held_bytes();
  const auto made = norm_projection(input, norm, {weight});
  EXPECT_EQ(held_bytes() - before, 4096 * 256 * 2 + 2 * 4096 * 4);
}

TEST_F(DeviceActivatedProjection, EqualsTheWideExpression) {
  for (const auto dtype : kDeviceDtypes) {
    for (const auto kind :
         {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu}) {
      for (const int64_t width : {11, 64, 384}) {
        for (const bool is_gated : {false, true}) {
          SCOPED_TRACE(::testing::Message() << static_cast<int>(kind) << " width " << width
                                            << (is_gated ? " gated " : " ") << dtype);
          const auto own = [&](const Inputs& in) {
            return activated_projection({.packed = in[0]}, kind, in[1], in[2], in[3]);
          };
          const Inputs inputs{device_randn({2, 60, is_gated ? 2 * width : width}),
                              device_randn({48, width}), device_randn({48}),
                              device_randn({2, 60, 48})};
          expect_same_as_wide(own, inputs, dtype, dtype == at::kFloat ? 3e-5 : 2e-2);
        }
      }
    }
  }
}

TEST_F(DeviceActivatedProjection, HoldsNothingButItsResult) {
  const auto input = device_randn({4096, 1024}, at::kBFloat16).requires_grad_();
  const auto weight = device_randn({256, 512}, at::kBFloat16).requires_grad_();
  const auto residual = device_randn({4096, 256}, at::kBFloat16).requires_grad_();
  const auto run = [&] {
    return activated_projection({.packed = input}, Activation::silu, weight, {}, residual);
  };
  run().sum().backward();
  const int64_t before = held_bytes();
  const auto made = run();
  EXPECT_EQ(held_bytes() - before, 4096 * 256 * 2);
}

TEST_F(DeviceLinear, EqualsTheWideExpressionWithAndWithoutItsParts) {
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t width : {9, 64}) {
      const Inputs inputs{device_randn({2, 30, width}), device_randn({40, width}),
                          device_randn({40}), device_randn({2, 30, 40})};
      const double tolerance = tolerance_of(dtype);
      expect_same_as_wide([](const Inputs& in) { return linear(in[0], in[1], in[2], in[3]); },
                          inputs, dtype, tolerance);
      expect_same_as_wide([](const Inputs& in) { return linear(in[0], in[1], in[2]); },
                          {inputs[0], inputs[1], inputs[2]}, dtype, tolerance);
      expect_same_as_wide([](const Inputs& in) { return linear(in[0], in[1], {}, in[2]); },
                          {inputs[0], inputs[1], inputs[3]}, dtype, tolerance);
    }
  }
}

TEST_F(DeviceLinear, AddsGradientsOfBf16IntoAnFp32Sink) {
  const auto inputs =
      leaves({device_randn({200, 64}), device_randn({40, 64}), device_randn({40})}, at::kBFloat16);
  const auto factors = device_randn({200, 40}, at::kBFloat16);
  const auto exact = run_operator([](const Inputs& in) { return linear(in[0], in[1], in[2]); },
                                  leaves(inputs, at::kDouble), factors.to(at::kDouble));
  const auto wide = inputs[1].options().dtype(at::kFloat).requires_grad(false);
  const auto slot = at::zeros({40, 64}, wide), bias_slot = at::zeros({40}, wide);
  nn::set_gradient_sink(inputs[1], [&] { return nn::GradientSink{slot, true}; });
  nn::set_gradient_sink(inputs[2], [&] { return nn::GradientSink{bias_slot, true}; });
  for (int pass = 1; pass <= 3; ++pass) {
    weighted(linear(inputs[0], inputs[1], inputs[2]), factors).backward();
    // No rounding to 16 bits anywhere: the operands are exact, the sums are fp32.
    expect_close(slot, exact.gradients[1] * pass, 1e-5, "weight");
    expect_close(bias_slot, exact.gradients[2] * pass, 1e-5, "bias");
  }
}

// Input, then as many weights as biases; the residual is used too.
Operator shared(size_t num, bool uses_residual) {
  return [=](const Inputs& in) {
    std::vector<LinearTerms> layers;
    for (size_t i = 0; i < num; ++i)
      layers.push_back({.weight = in[1 + i], .bias = in[1 + num + i]});
    auto made = shared_rows(in[0], layers);
    if (uses_residual) made.parts.push_back(made.residual * 2);
    return at::cat(made.parts, -1);
  };
}

TEST_F(DeviceSharedRows, EqualTheWideExpression) {
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t width : {9, 64}) {
      for (const size_t num : {1, 3}) {
        Inputs inputs{device_randn({2, 30, width})};
        for (size_t i = 0; i < num; ++i) inputs.push_back(device_randn({40, width}));
        for (size_t i = 0; i < num; ++i) inputs.push_back(device_randn({40}));
        for (const bool uses_residual : {true, false}) {
          SCOPED_TRACE(::testing::Message() << num << " of width " << width << " " << dtype
                                            << (uses_residual ? " with the residual" : ""));
          expect_same_as_wide(shared(num, uses_residual), inputs, dtype, tolerance_of(dtype));
        }
      }
    }
  }
}

// The residual's gradient belongs to others too, who may read it afterwards.
TEST_F(DeviceSharedRows, LeaveTheGradientOfTheResidualAlone) {
  const auto inputs = leaves({device_randn({50, 64}), device_randn({40, 64})}, at::kBFloat16);
  const auto made = shared_rows(inputs[0], {{.weight = inputs[1]}});
  const auto to_part = device_randn({50, 40}, at::kBFloat16);
  const auto to_residual = device_randn({50, 64}, at::kBFloat16), before = to_residual.clone();
  torch::autograd::backward({made.parts.front(), made.residual}, {to_part, to_residual});
  EXPECT_TRUE(at::equal(to_residual, before));
  EXPECT_FALSE(at::equal(inputs[0].grad(), before));
}

struct AttentionCase {
  int64_t heads, kv_heads, head_width, length;
  bool has_rotary, causal;
};

class Deterministic {
 public:
  Deterministic() { at::globalContext().setDeterministicAlgorithms(true, false); }
  ~Deterministic() { at::globalContext().setDeterministicAlgorithms(false, false); }
};

// A packed tensor belongs to the call: this one is made for it.
Operator attention_of(const AttentionCase& c, const RotaryTable& table) {
  return [&c, &table](const Inputs& in) {
    const AttentionOptions options{.causal = c.causal};
    return self_attention({.packed = in[0] * 1.0}, {c.heads, c.kv_heads},
                          c.has_rotary ? &table : nullptr, options);
  };
}

RotaryTable table_of(const AttentionCase& c) {
  return make_rotary_table(device_randn({c.head_width / 2}).abs(), c.length);
}

at::Tensor input_of(const AttentionCase& c) {
  return device_randn({2, c.length, (c.heads + 2 * c.kv_heads) * c.head_width});
}

::testing::Message name_of(const AttentionCase& c) {
  return ::testing::Message() << c.heads << "/" << c.kv_heads << " heads of " << c.head_width
                              << ", length " << c.length;
}

constexpr AttentionCase kAttentionCases[] = {
    {4, 4, 64, 128, false, true}, {4, 4, 64, 100, true, true}, {8, 2, 64, 128, true, true},
    {6, 1, 128, 77, true, true},  {4, 4, 40, 33, true, true},  {2, 2, 160, 64, true, true},
    {4, 2, 64, 96, true, false},  {2, 1, 64, 1, true, true},   {2, 2, 6, 20, true, true},
    {4, 4, 256, 40, false, true}};

TEST_F(DeviceSelfAttention, EqualsTheWideExpression) {
  for (const auto& c : kAttentionCases) {
    SCOPED_TRACE(name_of(c));
    const auto table = table_of(c);
    const auto own = attention_of(c, table);
    expect_same_as_wide(own, {input_of(c)}, at::kBFloat16, 3e-2, /*same_bits=*/false);
    expect_same_as_wide(own, {input_of(c)}, at::kFloat, 1e-4, /*same_bits=*/false);
  }
}

TEST_F(DeviceSelfAttention, GivesTheSameBitsWhenAskedFor) {
  for (const auto& c : kAttentionCases) {
    if (c.head_width % 8 != 0) continue;  // no kernel of its own
    SCOPED_TRACE(name_of(c));
    const auto table = table_of(c);
    const auto inputs = leaves({input_of(c)}, at::kBFloat16);
    const auto factors = device_randn({2, c.length, c.heads * c.head_width}, at::kBFloat16);
    const Deterministic deterministic;
    const auto first = run_operator(attention_of(c, table), inputs, factors);
    const auto second = run_operator(attention_of(c, table), inputs, factors);
    EXPECT_TRUE(at::equal(first.output, second.output));
    EXPECT_TRUE(at::equal(first.gradients[0], second.gradients[0]));
  }
}

TEST_F(DeviceSelfAttention, LeavesMasksAndWindowsToTheComposition) {
  const auto table = make_rotary_table(device_randn({32}).abs(), 48);
  auto mask = at::ones({2, 48}, at::TensorOptions(at::kLong).device(at::kCUDA));
  mask.narrow(1, 0, 5).zero_();
  for (const auto& options : {AttentionOptions{.causal = true, .padding_mask = mask},
                              AttentionOptions{.causal = true, .window = 7}}) {
    const auto own = [&](const Inputs& in) {
      const auto output = self_attention({.packed = in[0] * 1.0}, {4, 2}, &table, options);
      return output.narrow(1, 8, 40);  // queries that see something
    };
    expect_same_as_wide(own, {device_randn({2, 48, 8 * 64})}, at::kBFloat16, 3e-2, false);
  }
}

TEST_F(DeviceSelfAttention, CopiesALeafAndRefusesAReadOfWhatItTurned) {
  const auto table = make_rotary_table(device_randn({32}).abs(), 16);
  const AttentionOptions options{.causal = true};
  const auto leaf = device_randn({1, 16, 6 * 64}, at::kBFloat16).requires_grad_();
  const auto before = leaf.detach().clone();
  self_attention({.packed = leaf}, {2, 2}, &table, options).sum().backward();
  EXPECT_TRUE(at::equal(leaf, before));
  const auto made = leaf * 1.0;
  const auto squared = made.square();  // keeps `made` for its backward
  const auto output = self_attention({.packed = made}, {2, 2}, &table, options);
  EXPECT_THROW((squared.sum() + output.sum()).backward(), c10::Error);
}

TEST_F(DeviceSelfAttention, HoldsItsInputItsResultAndOneNumberPerRow) {
  const AttentionOptions options{.causal = true};
  const auto leaf = device_randn({2, 1024, 12 * 64}, at::kBFloat16).requires_grad_();
  const auto run = [&] { return self_attention({.packed = leaf}, {4, 4}, nullptr, options); };
  run().sum().backward();
  const int64_t before = held_bytes();
  const auto made = run();
  const int64_t extra = held_bytes() - before - 2 * 1024 * 4 * 64 * 2 - 2 * 1024 * 4 * 4;
  EXPECT_GE(extra, 0);
  EXPECT_LE(extra, 4096) << "seeds only";
}

}  // namespace
}  // namespace fullshard::ops
