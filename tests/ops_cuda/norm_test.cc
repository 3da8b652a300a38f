// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/norm.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "fullshard/base/error.h"
#include "fullshard/nn/gradient_hook.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

constexpr double kEpsilon = 1e-5;

class DeviceNorm : public OnDevice {};

at::Tensor rms(const Inputs& in) { return rms_norm(in[0], in[1], kEpsilon); }
at::Tensor layer(const Inputs& in) { return layer_norm(in[0], in[1], in[2], kEpsilon); }

// Around the borders of the kernels' forms: a warp's registers, a block's, none.
constexpr int64_t kWidths[] = {7,    8,    100,  768,  1000,  1024, 1032,
                               2048, 2050, 4096, 8192, 16384, 40000};

TEST_F(DeviceNorm, EqualsTheWideExpression) {
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t width : kWidths) {
      for (const int64_t rows : {1, 5, 700}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows of " << width << " " << dtype);
        const Inputs inputs{device_randn({rows, width}), device_randn({width}),
                            device_randn({width})};
        expect_same_as_wide(rms, {inputs[0], inputs[1]}, dtype, tolerance_of(dtype));
        expect_same_as_wide(layer, inputs, dtype, tolerance_of(dtype));
      }
    }
  }
}

TEST_F(DeviceNorm, GivesTheValuesOfTheCpu) {
  const auto input = at::randn({3, 37, 768}, at::kBFloat16) * 3;
  const auto weight = at::randn({768}, at::kBFloat16), bias = at::randn({768}, at::kBFloat16);
  const auto on_device = [&](const at::Tensor& tensor) { return tensor.to(at::kCUDA); };
  // A sum in another order may move a value across a border of rounding: one step of bf16.
  expect_close(rms_norm(on_device(input), on_device(weight), kEpsilon),
               rms_norm(input, weight, kEpsilon), 1.0 / 128, "rms_norm");
  expect_close(layer_norm(on_device(input), on_device(weight), on_device(bias), kEpsilon),
               layer_norm(input, weight, bias, kEpsilon), 1.0 / 128, "layer_norm");
}

TEST_F(DeviceNorm, TakesStridedAndMisalignedInputs) {
  const auto wide = device_randn({9, 2, 65});
  expect_same_as_wide(
      [](const Inputs& in) {
        return rms({in[0].transpose(0, 1), in[1]});
      },
      {wide, device_randn({65})}, at::kBFloat16, tolerance_of(at::kBFloat16));
  expect_same_as_wide(
      [](const Inputs& in) {
        return rms({in[0].slice(0, 1).view({1, 64}), in[1]});
      },
      {device_randn({65}), device_randn({64})}, at::kBFloat16, tolerance_of(at::kBFloat16));
}

TEST_F(DeviceNorm, TakesAnEmptyBatch) {
  auto inputs = leaves({device_randn({0, 8}), device_randn({8}), device_randn({8})}, at::kBFloat16);
  layer(inputs).sum().backward();
  for (int i = 1; i <= 2; ++i) EXPECT_EQ(inputs[i].grad().abs().max().item<float>(), 0);
  rms(inputs).sum().backward();
  EXPECT_EQ(inputs[1].grad().abs().max().item<float>(), 0);
}

TEST_F(DeviceNorm, FillsItsSinksInFp32) {
  const Inputs inputs =
      leaves({device_randn({300, 768}), device_randn({768}), device_randn({768})}, at::kBFloat16);
  const auto factors = device_randn({300, 768}, at::kBFloat16);
  const auto wanted =
      run_operator(layer, leaves(inputs, at::kDouble), factors.to(at::kDouble)).gradients;
  auto slots = at::zeros({2, 768}, inputs[0].options().dtype(at::kFloat).requires_grad(false));
  int opened = 0;
  for (int64_t i = 0; i < 2; ++i) {
    nn::set_gradient_sink(inputs[i + 1], [&, i] {
      return nn::GradientSink{slots[i], opened++ >= 2};
    });
  }
  for (int pass = 1; pass <= 2; ++pass) {
    weighted(layer(inputs), factors).backward();
    expect_close(slots[0], wanted[1] * pass, 1e-4, "weight");
    expect_close(slots[1], wanted[2] * pass, 1e-4, "bias");
  }
  EXPECT_FALSE(inputs[1].grad().defined());
}

TEST_F(DeviceNorm, RefusesSecondDerivatives) {
  auto input = device_randn({2, 8}).requires_grad_();
  const auto output = rms_norm(input, device_randn({8}), kEpsilon).sum();
  EXPECT_THAT([&] { torch::autograd::grad({output}, {input}, {}, true, true); },
              ::testing::ThrowsMessage<Error>(
                  "norm: second derivatives are not supported; call backward without "
                  "create_graph"));
}

}  // namespace
}  // namespace fullshard::ops
