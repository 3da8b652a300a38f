// SPDX-License-Identifier: Apache-2.0
// Attention with something added to its scores: T5's learned bias, padding masks.
#include <ATen/ops/ones.h>

#include "fullshard/ops/attention/attention.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

class DeviceBiasedAttention : public OnDevice {};

struct BiasedCase {
  int64_t queries = 0, keys = 0, width = 64;
  bool has_padding = false;
  bool is_causal = false;
};

AttentionOptions options_on(const BiasedCase& wanted, const at::Tensor& bias, at::Device device) {
  AttentionOptions options;
  options.bias = bias;
  options.causal = wanted.is_causal;
  options.scale = 1.0;
  if (wanted.has_padding) {
    options.padding_mask =
        at::ones({2, wanted.keys}, at::TensorOptions().dtype(at::kLong).device(device));
    options.padding_mask.narrow(0, 1, 1).narrow(1, wanted.keys - 3, 3).zero_();
  }
  return options;
}

// The output and the gradients of query, key, value and bias beside those of the CPU in fp32.
void expect_as_on_cpu(const BiasedCase& wanted, at::ScalarType dtype, double tolerance) {
  std::vector<at::Tensor> on_device, on_cpu;
  const std::vector<std::vector<int64_t>> sizes = {{2, wanted.queries, 3, wanted.width},
                                                   {2, wanted.keys, 3, wanted.width},
                                                   {2, wanted.keys, 3, wanted.width},
                                                   {1, 3, wanted.queries, wanted.keys}};
  for (const auto& size : sizes) {
    on_device.push_back((0.5 * device_randn(size)).to(dtype).detach().requires_grad_());
    on_cpu.push_back(on_device.back().detach().cpu().to(at::kFloat).requires_grad_());
  }
  const auto run = [&](const std::vector<at::Tensor>& in) {
    const auto output = attention(in[0], in[1], in[2], options_on(wanted, in[3], in[0].device()));
    output.pow(2).sum().backward();
    return output;
  };
  const auto found = run(on_device), expected = run(on_cpu);
  const auto compare = [&](const at::Tensor& own, const at::Tensor& exact, size_t which) {
    const double scale = exact.abs().max().item<double>();
    const double worst = (own.cpu().to(at::kFloat) - exact).abs().max().item<double>();
    EXPECT_LE(worst, tolerance * scale)
        << wanted.queries << " x " << wanted.keys << " " << dtype << " tensor " << which;
  };
  compare(found.detach(), expected.detach(), 4);
  for (size_t i = 0; i < sizes.size(); ++i) compare(on_device[i].grad(), on_cpu[i].grad(), i);
}

TEST_F(DeviceBiasedAttention, IsThatOfTheCpuWithAllGradients) {
  for (const bool has_padding : {false, true}) {
    for (const BiasedCase& one : {BiasedCase{16, 16}, BiasedCase{7, 13}, BiasedCase{40, 24, 32},
                                  BiasedCase{9, 9, 64, false, true}, BiasedCase{5, 11, 12},
                                  BiasedCase{200, 200, 64, false, true}}) {
      BiasedCase wanted = one;
      wanted.has_padding = has_padding;
      expect_as_on_cpu(wanted, at::kFloat, 2e-5);
      expect_as_on_cpu(wanted, at::kBFloat16, 0.03);
    }
  }
}

// What the kernels want of strides and rows is made where it is not so.
TEST_F(DeviceBiasedAttention, TakesViewsOfAnyStrides) {
  for (const int64_t keys : {7, 16, 21}) {
    const auto heads = [&] { return device_randn({2, 3, 16, keys}).permute({0, 3, 1, 2}); };
    const auto query = heads(), key = heads(), value = heads();
    const auto in_memory_of_images =
        device_randn({1, 3, keys, keys}).contiguous(at::MemoryFormat::ChannelsLast);
    const auto turned = device_randn({1, 3, keys, keys}).transpose(2, 3);
    const auto of_each_query = device_randn({2, 3, keys, 1});
    for (const auto& bias : {in_memory_of_images, turned, of_each_query, at::Tensor()}) {
      const auto on = [&](at::Device device) {
        AttentionOptions options;
        if (bias.defined()) options.bias = bias.to(device);
        options.causal = !bias.defined();
        return attention(query.to(device), key.to(device), value.to(device), options).cpu();
      };
      EXPECT_LE((on(query.device()) - on(at::kCPU)).abs().max().item<double>(), 2e-5);
    }
  }
}

}  // namespace
}  // namespace fullshard::ops
