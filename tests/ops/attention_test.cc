// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/attention/attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>

#include "fullshard/base/error.h"
#include "tests/ops/gradients.h"

namespace fullshard::ops {
namespace {

// The definition, written out.
at::Tensor expected_attention(const Inputs& in, const AttentionOptions& options) {
  const auto query = in[0].transpose(1, 2);
  const int64_t repeats = in[0].size(2) / in[1].size(2);
  const auto key = in[1].repeat_interleave(repeats, 2).transpose(1, 2);
  const auto value = in[2].repeat_interleave(repeats, 2).transpose(1, 2);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  auto scores = query.matmul(key.transpose(-1, -2)) * scale;
  if (in.size() > 3) scores = scores + in[3];
  const int64_t num_queries = query.size(2), num_keys = key.size(2);
  for (int64_t s = 0; s < num_queries && options.causal; ++s) {
    const int64_t last = s + num_keys - num_queries;
    for (int64_t k = 0; k < num_keys; ++k) {
      const bool is_visible = k <= last && (options.window == 0 || k > last - options.window);
      if (!is_visible) scores.select(2, s).select(2, k).fill_(-1e30);
    }
  }
  if (options.padding_mask.defined()) {
    const auto is_hidden = options.padding_mask.eq(0).unsqueeze(1).unsqueeze(1);
    scores = scores.masked_fill(is_hidden, -1e30);
  }
  return at::softmax(scores, -1).matmul(value).transpose(1, 2);
}

struct Shape {
  int64_t batch = 2, queries = 5, keys = 5, heads = 4, kv_heads = 4, width = 8;
};

Inputs random_heads(const Shape& shape) {
  const auto key = at::randn({shape.batch, shape.keys, shape.kv_heads, shape.width});
  return {at::randn({shape.batch, shape.queries, shape.heads, shape.width}), key,
          at::randn(key.sizes())};
}

// In fp32 through the fused kernel and in bf16, with gradients.
void expect_defined(const Shape& shape, const AttentionOptions& options) {
  const auto inputs = random_heads(shape);
  const auto own = [&](const Inputs& in) { return attention(in[0], in[1], in[2], options); };
  const auto wanted = [&](const Inputs& in) { return expected_attention(in, options); };
  const auto factors = at::randn(inputs[0].sizes());
  expect_same(own, wanted, inputs, factors, at::kFloat, 2e-5);
  expect_same(own, wanted, inputs, factors, at::kBFloat16, 0.12);
}

TEST(Attention, SeesAllKeysByDefault) {
  expect_defined({}, {});
  expect_defined({.queries = 3, .keys = 67}, {});
  expect_defined({}, {.scale = 1.0});
}

TEST(Attention, SeesOnlyEarlierKeysWhenCausal) {
  expect_defined({.queries = 67, .keys = 67}, {.causal = true});
}

TEST(Attention, AlignsCausalQueriesWithTheLastKeys) {
  expect_defined({.queries = 1, .keys = 9}, {.causal = true});
  expect_defined({.queries = 4, .keys = 9}, {.causal = true});
}

TEST(Attention, SeesOnlyTheWindow) {
  expect_defined({.queries = 9, .keys = 9}, {.causal = true, .window = 3});
  expect_defined({.queries = 9, .keys = 9}, {.causal = true, .window = 1});
  expect_defined({.queries = 9, .keys = 9}, {.causal = true, .window = 100});
  expect_defined({.queries = 2, .keys = 9}, {.causal = true, .window = 3});
  expect_defined({.queries = 1, .keys = 9}, {.causal = true, .window = 3});
}

TEST(Attention, SharesKeyHeadsBetweenNeighbouringQueryHeads) {
  expect_defined({.heads = 6, .kv_heads = 2}, {.causal = true});
  expect_defined({.batch = 1, .heads = 4, .kv_heads = 1}, {});
}

TEST(Attention, HidesPaddedKeys) {
  const auto right = at::tensor({1, 1, 1, 0, 0, 1, 1, 1, 1, 0}, at::kLong).view({2, 5});
  expect_defined({}, {.padding_mask = right});
  expect_defined({}, {.causal = true, .padding_mask = right.to(at::kBool)});
  expect_defined({.queries = 2, .heads = 4, .kv_heads = 2},
                 {.causal = true, .padding_mask = right});
  expect_defined({}, {.causal = true, .padding_mask = at::ones({2, 5})});
}

TEST(Attention, StaysFiniteForAQueryThatSeesNoKey) {
  const auto left = at::tensor({0, 0, 1, 1, 1, 0, 0, 0, 0, 0}, at::kLong).view({2, 5});
  for (const double dropout : {0.0, 0.5}) {
    for (const bool causal : {false, true}) {
      const AttentionOptions options{.causal = causal, .dropout = dropout, .padding_mask = left};
      const auto inputs = leaves(random_heads({}), at::kFloat);
      const auto found =
          run_operator([&](const Inputs& in) { return attention(in[0], in[1], in[2], options); },
                       inputs, at::ones({1}));
      EXPECT_TRUE(found.output.isfinite().all().item<bool>());
      for (const auto& gradient : found.gradients) {
        EXPECT_TRUE(gradient.isfinite().all().item<bool>());
      }
    }
  }
}

TEST(Attention, AddsABiasAndGivesItItsGradient) {
  for (const auto& sizes :
       {std::vector<int64_t>{1, 4, 5, 5}, {2, 4, 5, 5}, {4, 1, 5}, {2, 1, 1, 5}}) {
    auto inputs = random_heads({});
    inputs.push_back(at::randn(sizes));
    const auto padding = at::tensor({1, 1, 1, 0, 1, 1, 1, 1, 1, 0}, at::kLong).view({2, 5});
    for (const bool causal : {false, true}) {
      const AttentionOptions options{.causal = causal, .scale = 1.0, .padding_mask = padding};
      const auto own = [&](const Inputs& in) {
        auto with_bias = options;
        with_bias.bias = in[3];
        return attention(in[0], in[1], in[2], with_bias);
      };
      const auto wanted = [&](const Inputs& in) { return expected_attention(in, options); };
      const auto factors = at::randn(inputs[0].sizes());
      expect_same(own, wanted, inputs, factors, at::kFloat, 2e-5);
      at::NoGradGuard no_grad;  // the fused kernel takes a bias without gradient
      EXPECT_LE(largest_difference(own(inputs), wanted(inputs)), 2e-5);
    }
  }
}

TEST(Attention, TakesABiasThatHidesKeysInPlaceOfAMask) {
  auto inputs = random_heads({});
  inputs.push_back(at::randn({1, 4, 5, 5}));
  const auto padding = at::tensor({1, 1, 1, 0, 1, 1, 1, 1, 1, 0}, at::kLong).view({2, 5});
  const auto own = [&](const Inputs& in) {
    return attention(in[0], in[1], in[2], {.bias = ops::bias_hiding_keys(in[3], padding)});
  };
  const auto wanted = [&](const Inputs& in) {
    return attention(in[0], in[1], in[2], {.padding_mask = padding, .bias = in[3]});
  };
  expect_same(own, wanted, inputs, at::randn(inputs[0].sizes()), at::kFloat, 1e-6);
  EXPECT_TRUE(ops::bias_hiding_keys(inputs[3], at::ones({2, 5})).is_same(inputs[3]));
  EXPECT_THROW(ops::bias_hiding_keys(inputs[3], at::zeros({2, 4})), Error);
}

TEST(Attention, HasTheSlopesOfItsValues) {
  auto inputs =
      random_heads({.batch = 1, .queries = 3, .keys = 4, .heads = 2, .kv_heads = 1, .width = 3});
  inputs.push_back(at::randn({1, 2, 3, 4}));
  for (const bool with_bias : {false, true}) {
    expect_slopes(
        [&](const Inputs& in) {
          AttentionOptions options{.causal = true};
          if (with_bias) options.bias = in[3];
          return attention(in[0], in[1], in[2], options) + 0 * in[3].sum();
        },
        inputs, at::randn({1, 3, 2, 3}));
  }
}

TEST(Attention, TakesViewsOfOneProduct) {
  expect_same(
      [](const Inputs& in) {
        const auto parts = in[0].view({2, 5, 3, 4, 8}).unbind(2);
        return attention(parts[0], parts[1], parts[2], {.causal = true});
      },
      [](const Inputs& in) {
        const auto parts = in[0].view({2, 5, 3, 4, 8}).unbind(2);
        return expected_attention({parts[0], parts[1], parts[2]}, {.causal = true});
      },
      {at::randn({2, 5, 96})}, at::randn({2, 5, 4, 8}), at::kFloat, 2e-5);
}

TEST(Attention, ReturnsTheQuerysLayoutWithoutACopy) {
  const auto inputs = random_heads({});
  EXPECT_TRUE(attention(inputs[0], inputs[1], inputs[2], {.causal = true}).is_contiguous());
}

TEST(Attention, DropsProbabilitiesFromTorchsGenerator) {
  const auto inputs = random_heads({.queries = 30, .keys = 30});
  const auto drawn = [&](uint64_t seed) {
    auto generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(seed);
    return attention(inputs[0], inputs[1], inputs[2], {.causal = true, .dropout = 0.5});
  };
  const auto first = drawn(1);
  EXPECT_TRUE(at::equal(first, drawn(1)));
  EXPECT_FALSE(at::equal(first, drawn(2)));
  // A query that sees one key keeps or drops it whole: its value is doubled or zero.
  const auto doubled = inputs[2].select(1, 0) * 2;
  const auto row = first.select(1, 0);
  const auto is_kept = row.ne(0);
  EXPECT_TRUE(at::allclose(row, doubled * is_kept));
}

TEST(Attention, TakesEmptyBatchesAndSequences) {
  const auto none = random_heads({.batch = 0});
  EXPECT_EQ(attention(none[0], none[1], none[2], {}).sizes(), none[0].sizes());
  const auto no_queries = random_heads({.queries = 0});
  EXPECT_EQ(attention(no_queries[0], no_queries[1], no_queries[2], {}).numel(), 0);
}

TEST(Attention, NamesWhatDoesNotFit) {
  const auto inputs = random_heads({.heads = 4, .kv_heads = 3});
  EXPECT_THAT([&] { attention(inputs[0], inputs[1], inputs[2], {}); },
              testing::ThrowsMessage<Error>(
                  "attention: 4 query heads cannot share 3 key heads evenly; give a divisor"));
  const auto good = random_heads({});
  EXPECT_THAT([&] { attention(good[0], good[1], good[2], {.window = 3}); },
              testing::ThrowsMessage<Error>(
                  "attention: a window of 3 keys without causal; set causal, or window to 0"));
  EXPECT_THAT(
      [&] {
        attention(good[0], good[1], good[2], {.padding_mask = at::ones({5, 2})});
      },
      testing::ThrowsMessage<Error>(
          "attention: the padding mask has 2 dimensions and 10 elements; expected [2, 5], "
          "batch and keys"));
}

}  // namespace
}  // namespace fullshard::ops
