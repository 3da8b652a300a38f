// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/attention/self_attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>

#include "fullshard/base/error.h"
#include "tests/ops/gradients.h"

namespace fullshard::ops {
namespace {

constexpr int64_t kBatch = 2, kLength = 6, kHead = 8;

RotaryTable some_table() { return make_rotary_table(at::randn({kHead / 2}), 12); }

at::Tensor expected_result(const Inputs& parts, int64_t heads, int64_t kv_heads,
                           const RotaryTable* table, const AttentionOptions& options,
                           const at::Tensor& positions = {}) {
  auto query = parts[0].unflatten(-1, {heads, -1}), key = parts[1].unflatten(-1, {kv_heads, -1});
  if (table != nullptr) {
    query = apply_rotary(query, *table, positions);
    key = apply_rotary(key, *table, positions);
  }
  return attention(query, key, parts[2].unflatten(-1, {kv_heads, -1}), options).flatten(2);
}

Inputs random_parts(int64_t heads, int64_t kv_heads) {
  return leaves(
      {at::randn({kBatch, kLength, heads * kHead}), at::randn({kBatch, kLength, kv_heads * kHead}),
       at::randn({kBatch, kLength, kv_heads * kHead})},
      at::kFloat);
}

TEST(SelfAttention, IsRotaryAndAttentionToTheBitOnTheCpu) {
  const auto table = some_table();
  const AttentionOptions options{.causal = true};
  for (const int64_t kv_heads : {4, 2, 1}) {
    const auto parts = random_parts(4, kv_heads);
    const auto factors = at::randn({kBatch, kLength, 4 * kHead});
    const auto wanted = run_operator(
        [&](const Inputs& in) { return expected_result(in, 4, kv_heads, &table, options); }, parts,
        factors);
    const auto separate = run_operator(
        [&](const Inputs& in) {
          return self_attention({.parts = in}, {4, kv_heads}, &table, options);
        },
        parts, factors);
    const auto packed = run_operator(
        [&](const Inputs& in) {
          return self_attention({.packed = at::cat(in, -1)}, {4, kv_heads}, &table, options);
        },
        parts, factors);
    EXPECT_TRUE(at::equal(separate.output, wanted.output));
    EXPECT_TRUE(at::equal(packed.output, wanted.output));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::equal(separate.gradients[i], wanted.gradients[i])) << i;
      EXPECT_TRUE(at::equal(packed.gradients[i], wanted.gradients[i])) << i;
    }
  }
}

TEST(SelfAttention, TakesOnePartThatHoldsAllThree) {
  const auto parts = random_parts(2, 2);
  const AttentionOptions options{.causal = true, .scale = 0.3};
  const auto found = self_attention({.parts = {at::cat(parts, -1)}}, {2, 2}, nullptr, options);
  EXPECT_TRUE(at::equal(found, expected_result(parts, 2, 2, nullptr, options)));
}

TEST(SelfAttention, TurnsByGivenPositions) {
  const auto table = some_table();
  const auto parts = random_parts(2, 1);
  const auto positions = (at::arange(kLength) + 5).unsqueeze(0);
  const auto found = self_attention({.parts = parts}, {2, 1}, &table, {}, positions);
  EXPECT_TRUE(at::equal(found, expected_result(parts, 2, 1, &table, {}, positions)));
  EXPECT_FALSE(at::equal(found, expected_result(parts, 2, 1, &table, {})));
}

TEST(SelfAttention, NamesRowsThatDoNotFitTheHeads) {
  EXPECT_THAT(
      [] {
        self_attention({.packed = at::randn({1, 2, 30})}, {4, 2}, nullptr, {});
      },
      ::testing::ThrowsMessage<Error>(
          "self_attention: rows of 30 elements for 4 heads and twice 2 key heads; expected "
          "a multiple of their number"));
}

}  // namespace
}  // namespace fullshard::ops
