// SPDX-License-Identifier: Apache-2.0
// The two kernels of a decoding step.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fullshard/ops/cuda/few_rows_products.h"
#include "fullshard/ops/cuda/step_attention_rows.h"
#include "tests/emulated_cuda/kernel_run.h"

namespace fullshard::emulation {
namespace {

constexpr auto kTypes = {at::kBFloat16, at::kFloat};

at::Tensor random(at::ScalarType dtype, at::IntArrayRef sizes) {
  return at::randn(sizes).to(dtype);
}
ops::KernelDtype kernel_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat ? ops::KernelDtype::fp32 : ops::KernelDtype::bf16;
}
// How far rounding takes a sum of some terms.
double tolerance_of_sums(at::ScalarType dtype) { return dtype == at::kFloat ? 1e-5 : 1.0 / 64; }
at::Tensor wide_of(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

struct FewRowsCase {
  int64_t rows, width;
  std::vector<int64_t> outputs;
  bool is_normed = false, centred = false, is_activated = false, is_gated = false;
  at::ScalarType dtype = at::kBFloat16;

  bool is_wide() const { return dtype == at::kFloat; }
};

struct FewRowsInputs {
  at::Tensor input, residual, norm_weight, norm_bias;
  std::vector<at::Tensor> weights, biases;
  int64_t num_outputs = 0;

  explicit FewRowsInputs(const FewRowsCase& given) {
    input = random(given.dtype, {given.rows, given.width});
    norm_weight = random(given.dtype, {given.width});
    norm_bias = random(given.dtype, {given.width});
    for (const auto outputs : given.outputs) {
      weights.push_back(
          (random(given.dtype, {outputs, given.width}) / std::sqrt(given.width)).to(given.dtype));
      biases.push_back(random(given.dtype, {outputs}));
      num_outputs += given.is_gated && num_outputs > 0 ? 0 : outputs;
    }
    residual = random(given.dtype, {given.rows, num_outputs});
  }
};

ops::FewRowsProducts products_of(const FewRowsCase& given, const FewRowsInputs& inputs) {
  ops::FewRowsProducts products{};
  products.input = inputs.input.data_ptr();
  if (!given.is_activated) products.residual = inputs.residual.data_ptr();
  if (given.is_normed) {
    products.norm = {inputs.norm_weight.data_ptr(),
                     given.centred ? inputs.norm_bias.data_ptr() : nullptr, 1e-5f, given.centred};
  }
  products.activation = {given.is_activated, given.is_gated, ops::RowActivation::silu};
  products.num_rows = given.rows;
  products.width = given.width;
  products.num_weights = static_cast<int>(given.outputs.size());
  for (size_t i = 0; i < given.outputs.size(); ++i) {
    products.weights[i] = {inputs.weights[i].data_ptr(), inputs.biases[i].data_ptr(),
                           given.outputs[i]};
  }
  return products;
}

at::Tensor normed(const FewRowsCase& given, const FewRowsInputs& inputs) {
  const auto x = wide_of(inputs.input);
  if (!given.is_normed) return x;
  const auto weight = wide_of(inputs.norm_weight);
  if (given.centred) {
    return at::layer_norm(x, {given.width}, weight, wide_of(inputs.norm_bias), 1e-5);
  }
  return x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * weight;
}

at::Tensor expected_of(const FewRowsCase& given, const FewRowsInputs& inputs) {
  const auto x = normed(given, inputs);
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < inputs.weights.size(); ++i) {
    parts.push_back(x.matmul(wide_of(inputs.weights[i]).t()) + wide_of(inputs.biases[i]));
  }
  if (given.is_gated) return at::silu(parts[0]) * parts[1];
  const auto all = at::cat(parts, -1);
  return given.is_activated ? at::silu(all) : all + wide_of(inputs.residual);
}

at::Tensor multiplied(const FewRowsCase& given, const FewRowsInputs& inputs) {
  const auto products = products_of(given, inputs);
  const auto wide_rows = normed(given, inputs).to(at::kFloat);
  return run_in_orders([&] {
    const Output output({given.rows, inputs.num_outputs}, given.dtype);
    const Output rows({given.rows, given.width}, given.dtype);
    auto own = products;
    own.output = output.data();
    if (given.is_wide()) {
      own.input = wide_rows.data_ptr();
      own.norm = {};
      ops::multiply_few_wide_rows(own, kNoStream);
      return Outputs{output};
    }
    if (given.is_normed && !ops::norms_few_rows_on_the_way(given.rows, given.width)) {
      ops::norm_few_rows(rows.data(), own, kNoStream);
      own.input = rows.data();
      own.norm = {};
    }
    ops::multiply_few_rows(own, kNoStream);
    return Outputs{output};
  })[0];
}

TEST(EmulatedFewRows, EqualTheWideExpression) {
  const std::vector<FewRowsCase> cases = {
      {1, 32, {1}},
      {1, 96, {40}},
      {7, 256, {15, 16, 40}},
      {9, 288, {33}},
      {17, 64, {24}},
      {32, 160, {16, 17}},
      {2, 4096, {48}},   // one larger block for long sums of few outputs
      {32, 3232, {16}},  // more than shared memory takes
      {3, 320, {40, 8, 8}, /*is_normed=*/true},
      {3, 320, {40}, true, /*centred=*/true},
      {12, 320, {40}, true, true},  // normed before
      {3, 320, {40}, true, false, /*is_activated=*/true},
      {3, 320, {40, 40}, true, true, true, /*is_gated=*/true},
      {20, 320, {13, 13}, false, false, true, true},
  };
  for (auto given : cases) {
    for (const auto dtype : kTypes) {
      SCOPED_TRACE(::testing::Message()
                   << given.rows << " rows of " << given.width << " for " << given.outputs.size()
                   << " weights, " << c10::toString(dtype));
      given.dtype = dtype;
      const FewRowsInputs inputs(given);
      expect_near(multiplied(given, inputs), expected_of(given, inputs), tolerance_of_sums(dtype),
                  "products");
    }
  }
}

TEST(EmulatedFewRows, GiveARowTheSameBitsInEveryBatch) {
  for (const auto dtype : kTypes) {
    FewRowsCase given{32, 320, {40, 24}};
    given.dtype = dtype;
    const FewRowsInputs inputs(given);
    const auto all = multiplied(given, inputs);
    for (const int64_t count : {1, 3, 8, 9, 31}) {
      auto fewer = given;
      fewer.rows = count;
      EXPECT_TRUE(at::equal(multiplied(fewer, inputs), all.narrow(0, 0, count)))
          << count << " rows, " << c10::toString(dtype);
    }
  }
}

// Rows that almost fill what a block may have, by its width, beside what the kernel declares.
TEST(EmulatedFewRows, FitEveryDeviceAndHaveItsBits) {
  const std::vector<FewRowsCase> cases = {{12, 4096, {16}}, {16, 3072, {16}}, {20, 2048, {16}},
                                          {24, 2048, {16}}, {32, 1536, {16}}, {9, 5632, {16}}};
  for (const auto& given : cases) {
    const FewRowsInputs inputs(given);
    const auto expected = multiplied(given, inputs);
    for (const auto& device : kDevices) {
      SCOPED_TRACE(::testing::Message() << given.rows << " rows of " << given.width << " on "
                                        << device.major << "." << device.minor);
      device.use();
      EXPECT_TRUE(at::equal(multiplied(given, inputs), expected));
      Device().use();
    }
  }
}

struct StepCase {
  int64_t heads, kv_heads, width, window;
  bool turns;
  at::ScalarType dtype;
};

TEST(EmulatedStepAttention, LeavesNanWhereCacheOrTableHaveNoPlace) {
  const int64_t capacity = 10, num_positions = 8, width = 32;
  const auto positions = at::tensor({-1, 7, 8, 10}, at::kLong);
  const auto cosines = at::randn({num_positions, width / 2}), sines = cosines.clone();
  const auto packed = random(at::kBFloat16, {4, 3, width});
  const auto cache = random(at::kBFloat16, {4, 1, capacity, width});
  const auto found = run_in_orders([&] {
    const Output output({4, 1, width}, at::kBFloat16);
    const Output keys(cache), values(cache);
    ops::attend_step({.output = output.data(),
                      .rows = packed.data_ptr(),
                      .keys = keys.data(),
                      .values = values.data(),
                      .positions = positions.data_ptr<int64_t>(),
                      .cosines = cosines.data_ptr<float>(),
                      .sines = sines.data_ptr<float>(),
                      .num_positions = num_positions,
                      .num_rows = 4,
                      .num_heads = 1,
                      .num_kv_heads = 1,
                      .width = width,
                      .capacity = capacity,
                      .window = 0,
                      .scale = 1},
                     ops::KernelDtype::bf16, kNoStream);
    return Outputs{output, keys, values};
  });
  const auto are_nan = found[0].isnan().flatten(1).sum(1).gt(0);
  EXPECT_TRUE(at::equal(are_nan, at::tensor({1, 0, 1, 1}).ne(0))) << are_nan;
  for (const int64_t row : {0, 2, 3}) EXPECT_TRUE(at::equal(found[1][row], cache[row])) << row;
}

TEST(EmulatedStepAttention, EqualsAttentionOverTheWholeRow) {
  const int64_t capacity = 70;
  const auto positions = at::tensor({0, 1, 33, 69}, at::kLong);
  const int64_t rows = positions.numel();
  std::vector<StepCase> cases;
  for (const auto dtype : kTypes) {
    cases.push_back({2, 2, 32, 0, false, dtype});
    cases.push_back({4, 2, 64, 0, true, dtype});
    cases.push_back({4, 1, 128, 8, true, dtype});
    cases.push_back({1, 1, 256, 0, true, dtype});
  }
  for (const auto& given : cases) {
    const auto dtype = given.dtype;
    SCOPED_TRACE(::testing::Message()
                 << given.heads << " heads of " << given.width << ", " << c10::toString(dtype));
    const auto angles = at::randn({capacity, given.width / 2});
    const auto cosines = angles.cos(), sines = angles.sin();
    const auto packed = random(dtype, {rows, given.heads + 2 * given.kv_heads, given.width});
    const auto keys = random(dtype, {rows, given.kv_heads, capacity, given.width});
    const auto values = random(dtype, {rows, given.kv_heads, capacity, given.width});
    const float scale = 1 / std::sqrt(static_cast<float>(given.width));
    const auto found = run_in_orders([&] {
      const Output output({rows, given.heads, given.width}, dtype);
      const Output own_keys(keys), own_values(values);
      ops::attend_step({.output = output.data(),
                        .rows = packed.data_ptr(),
                        .keys = own_keys.data(),
                        .values = own_values.data(),
                        .positions = positions.data_ptr<int64_t>(),
                        .cosines = given.turns ? cosines.data_ptr<float>() : nullptr,
                        .sines = given.turns ? sines.data_ptr<float>() : nullptr,
                        .num_positions = capacity,
                        .num_rows = rows,
                        .num_heads = given.heads,
                        .num_kv_heads = given.kv_heads,
                        .width = given.width,
                        .capacity = capacity,
                        .window = given.window,
                        .scale = scale},
                       kernel_dtype(dtype), kNoStream);
      return Outputs{output, own_keys, own_values};
    });
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t position = positions[row].item<int64_t>(), length = position + 1;
      const auto turned = [&](at::Tensor heads) {
        if (!given.turns) return heads.to(dtype);
        const auto halves = heads.to(at::kFloat).chunk(2, -1);
        const auto cosine = cosines[position], sine = sines[position];
        return at::cat(
                   {halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine},
                   -1)
            .to(dtype);
      };
      const auto query = turned(packed[row].narrow(0, 0, given.heads));
      const auto key = turned(packed[row].narrow(0, given.heads, given.kv_heads));
      const auto value = packed[row].narrow(0, given.heads + given.kv_heads, given.kv_heads);
      auto all_keys = keys[row].clone(), all_values = values[row].clone();
      all_keys.select(1, position).copy_(key);
      all_values.select(1, position).copy_(value);
      EXPECT_TRUE(at::equal(found[1][row], all_keys)) << "keys of row " << row;
      EXPECT_TRUE(at::equal(found[2][row], all_values)) << "values of row " << row;
      const int64_t first = given.window > 0 ? std::max<int64_t>(0, length - given.window) : 0;
      const auto seen = [&](const at::Tensor& cache) {
        return wide_of(cache.narrow(1, first, length - first))
            .repeat_interleave(given.heads / given.kv_heads, 0);
      };
      const auto scores =
          (wide_of(query).unsqueeze(1).matmul(seen(all_keys).transpose(1, 2)) * scale).softmax(-1);
      expect_near(found[0][row], scores.matmul(seen(all_values)).squeeze(1),
                  tolerance_of_sums(dtype), "attended");
    }
  }
}

}  // namespace
}  // namespace fullshard::emulation
