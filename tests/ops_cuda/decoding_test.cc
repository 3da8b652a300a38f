// SPDX-License-Identifier: Apache-2.0
// The kernels of a decoding step.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "fullshard/ops/decoding/cached_attention.h"
#include "fullshard/ops/decoding/device_decoding.h"
#include "fullshard/ops/decoding/few_rows.h"
#include "fullshard/ops/products/linear.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

class DeviceDecoding : public OnDevice {
 protected:
  at::NoGradGuard no_grad_;
};

at::Tensor wide_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& residual) {
  auto sum = input.to(at::kDouble).matmul(weight.to(at::kDouble).t());
  if (bias.defined()) sum = sum + bias.to(at::kDouble);
  return residual.defined() ? sum + residual.to(at::kDouble) : sum;
}

TEST_F(DeviceDecoding, MultipliesFewRowsByWeightsOfAnySize) {
  for (const int64_t width : {32, 96, 256, 2048, 5632}) {
    for (const int64_t outputs : {1, 15, 16, 40, 2048}) {
      for (const int64_t rows : {1, 7, 8, 9, 16, 17, 32}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows, " << outputs << " x " << width);
        const auto input = bf16_randn({rows, 1, width}), weight = bf16_randn({outputs, width});
        const auto bias = bf16_randn({outputs}), residual = bf16_randn({rows, 1, outputs});
        ASSERT_TRUE(has_device_few_rows(input, {.weights = {weight}, .biases = {bias}}, residual));
        expect_close(few_rows_linear(input, weight, bias, residual),
                     wide_linear(input, weight, bias, residual), 1.0 / 128, "with a residual");
        expect_close(few_rows_linear(input, weight), wide_linear(input, weight, {}, {}), 1.0 / 128,
                     "plain");
      }
    }
  }
}

TEST_F(DeviceDecoding, MultipliesFewRowsOfFp32) {
  for (const int64_t width : {32, 96, 2048, 5632}) {
    for (const int64_t outputs : {1, 15, 2048}) {
      for (const int64_t rows : {1, 3, 8, 9, 17, 32}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows, " << outputs << " x " << width);
        const auto input = device_randn({rows, 1, width});
        const auto weight = device_randn({outputs, width}), bias = device_randn({outputs});
        const auto residual = device_randn({rows, 1, outputs});
        ASSERT_TRUE(has_device_few_rows(input, {.weights = {weight}, .biases = {bias}}, residual));
        const auto found = few_rows_linear(input, weight, bias, residual);
        expect_close(found, wide_linear(input, weight, bias, residual), 1e-5, "products");
        EXPECT_TRUE(at::equal(few_rows_linear(input.narrow(0, 0, 1).contiguous(), weight, bias,
                                              residual.narrow(0, 0, 1).contiguous()),
                              found.narrow(0, 0, 1)));
      }
    }
  }
  const auto input = device_randn({5, 1, 256});
  const NormTerms norm{device_randn({256}), {}, 1e-5, false};
  const std::vector<at::Tensor> inner = {device_randn({40, 256}) / 16,
                                         device_randn({40, 256}) / 16};
  const FewRowsOperands operands{inner, {{}, {}}, &norm, Activation::silu};
  ASSERT_TRUE(has_device_few_rows(input, operands, {}));
  const auto found = at::empty({5, 1, 40}, input.options());
  device_few_rows(found, input, operands, {});
  const auto normed = apply_norm(input, norm);
  const auto wanted = activate(few_rows_linear(normed, inner[0]), Activation::silu) *
                      few_rows_linear(normed, inner[1]);
  expect_close(found, wanted.to(at::kDouble), 1e-5, "activated");
}

TEST_F(DeviceDecoding, GivesARowTheSameBitsInEveryBatch) {
  const auto input = bf16_randn({32, 1, 2048});
  const std::vector<at::Tensor> weights = {bf16_randn({2048, 2048}), bf16_randn({250, 2048}),
                                           bf16_randn({256, 2048})};
  const NormTerms norm{bf16_randn({2048}), {}, 1e-5, false};
  const auto all = few_rows_norm_projection(input, norm, weights, {{}, {}, {}}).packed;
  ASSERT_EQ(all.sizes(), (std::vector<int64_t>{32, 1, 2554}));
  for (const int64_t count : {1, 3, 8, 12, 31}) {
    const auto some = input.narrow(0, 32 - count, count).contiguous();
    EXPECT_TRUE(at::equal(few_rows_norm_projection(some, norm, weights, {{}, {}, {}}).packed,
                          all.narrow(0, 32 - count, count)))
        << count;
  }
}

// Norm and activation inside of a product, beside the same of the plain operators.
TEST_F(DeviceDecoding, NormsAndActivatesOnTheWay) {
  for (const int64_t rows : {1, 8, 16, 31}) {
    for (const bool centred : {false, true}) {
      const auto input = bf16_randn({rows, 1, 2048});
      const NormTerms norm{bf16_randn({2048}), centred ? bf16_randn({2048}) : at::Tensor(), 1e-5,
                           centred};
      for (const int64_t outputs : {40, 1000}) {
        const std::vector<at::Tensor> inner = {bf16_randn({outputs, 2048}) / 45,
                                               bf16_randn({outputs, 2048}) / 45};
        const std::vector<at::Tensor> biases = {bf16_randn({outputs}), bf16_randn({outputs})};
        for (const auto kind :
             {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
          for (const size_t parts : {1, 2}) {
            SCOPED_TRACE(::testing::Message()
                         << rows << " rows, " << outputs << " outputs, centred " << centred << ", "
                         << parts << " weights");
            const FewRowsOperands operands{{inner.begin(), inner.begin() + parts},
                                           {biases.begin(), biases.begin() + parts},
                                           &norm,
                                           kind};
            ASSERT_TRUE(has_device_few_rows(input, operands, {}));
            const auto found = at::empty({rows, 1, outputs}, input.options());
            device_few_rows(found, input, operands, {});
            const auto normed = apply_norm(input, norm);
            auto wanted = activate(few_rows_linear(normed, inner[0], biases[0]), kind);
            if (parts == 2) wanted = wanted * few_rows_linear(normed, inner[1], biases[1]);
            expect_close(found, wanted.to(at::kDouble), 1.0 / 64, "activated");
          }
        }
      }
    }
  }
}

TEST_F(DeviceDecoding, LeavesOthersToTheGeneralProducts) {
  const auto weight = bf16_randn({64, 64});
  const auto refuses = [&](const at::Tensor& input, const at::Tensor& by) {
    return !has_device_few_rows(input, {.weights = {by}, .biases = {{}}}, {});
  };
  EXPECT_FALSE(refuses(bf16_randn({2, 64}), weight));
  EXPECT_TRUE(refuses(bf16_randn({33, 64}), weight));
  EXPECT_TRUE(refuses(bf16_randn({2, 48}), bf16_randn({64, 48})));
  EXPECT_TRUE(refuses(device_randn({2, 64}), weight));
  EXPECT_TRUE(refuses(device_randn({2, 64}).to(at::kHalf), weight.to(at::kHalf)));
  EXPECT_TRUE(refuses(bf16_randn({2, 64}), weight.t()));
  const at::AutoGradMode with_gradients(true);
  EXPECT_TRUE(refuses(bf16_randn({2, 64}), weight));
}

struct Step {
  int64_t heads, kv_heads, width, window;
  bool turns;
  at::ScalarType dtype;
};

// Rows of different lengths, one token longer by either way; the caches hold the same then, too.
void expect_same_attention(const Step& step) {
  const int64_t capacity = 300;
  const std::vector<int64_t> starts = {0, 1, 37, 299, 128};
  const auto rows = static_cast<int64_t>(starts.size());
  const auto random = [&](at::IntArrayRef sizes) { return device_randn(sizes).to(step.dtype); };
  const auto packed = random({rows, 1, (step.heads + 2 * step.kv_heads) * step.width});
  auto keys = random({rows, step.kv_heads, capacity, step.width});
  auto values = random({rows, step.kv_heads, capacity, step.width});
  const auto other_keys = keys.clone(), other_values = values.clone();
  const auto frequencies = at::arange(step.width / 2, keys.options().dtype(at::kFloat)) * -0.3;
  const auto table = make_rotary_table(frequencies.exp(), capacity);
  const auto places = make_places(starts, 1, packed.device());
  const SelfAttentionHeads heads{step.heads, step.kv_heads};
  const auto found = step_attention({.packed = packed}, heads, step.turns ? &table : nullptr, keys,
                                    values, places, {.window = step.window});
  ASSERT_TRUE(found.defined());
  auto [query, key, value] = split_heads({.packed = packed}, heads);
  if (step.turns) {
    query = apply_rotary(query, table, places.positions);
    key = apply_rotary(key, table, places.positions);
  }
  store_in_cache(other_keys, key, places);
  store_in_cache(other_values, value, places);
  EXPECT_TRUE(at::equal(keys, other_keys));
  EXPECT_TRUE(at::equal(values, other_values));
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  const auto wanted = cached_attention(wide(query), wide(other_keys), wide(other_values), places,
                                       {.window = step.window});
  expect_close(found, wanted, step.dtype == at::kFloat ? 1e-5 : 1.0 / 128, "attention");
}

TEST_F(DeviceDecoding, AttendsToEachRowUpToItsPlaceAndStoresTheNewToken) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    for (const int64_t width : {32, 64, 128, 256}) {
      for (const Step& step :
           {Step{8, 2, width, 0, true, dtype}, Step{4, 4, width, 0, false, dtype},
            Step{6, 1, width, 20, true, dtype}}) {
        SCOPED_TRACE(::testing::Message()
                     << c10::toString(dtype) << ", " << step.heads << " heads, " << step.kv_heads
                     << " of keys, " << width << " wide, window " << step.window);
        expect_same_attention(step);
      }
    }
  }
}

TEST_F(DeviceDecoding, LeavesOtherHeadsToTheGeneralAttention) {
  const auto places = make_places({3}, 1, at::kCUDA);
  const auto cache = at::zeros({1, 1, 8, 48}, bf16_randn({1}).options());
  EXPECT_FALSE(step_attention({.packed = bf16_randn({1, 1, 3 * 48})}, {1, 1}, nullptr, cache, cache,
                              places, {})
                   .defined());
}

}  // namespace
}  // namespace fullshard::ops
