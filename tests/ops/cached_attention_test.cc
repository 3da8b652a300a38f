// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/decoding/cached_attention.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <limits>

#include "fullshard/ops/attention/attention.h"

namespace fullshard::ops {
namespace {

constexpr int64_t kHeads = 4, kKeyHeads = 2, kHeadWidth = 24, kCapacity = 20;

// What nobody may look at is NaN.
at::Tensor empty_cache(at::ScalarType dtype) {
  return at::full({3, kKeyHeads, kCapacity, kHeadWidth}, std::numeric_limits<double>::quiet_NaN(),
                  at::TensorOptions().dtype(dtype));
}

struct Step {
  at::Tensor query{}, keys{}, values{};  // the last two are caches
  std::vector<at::Tensor> row_keys{}, row_values{};
  CachePlaces places{};
};

Step make_step(const std::vector<int64_t>& lengths, at::ScalarType dtype) {
  Step step{.query = at::randn({3, 1, kHeads, kHeadWidth}).to(dtype),
            .keys = empty_cache(dtype),
            .values = empty_cache(dtype)};
  for (size_t row = 0; row < lengths.size(); ++row) {
    step.row_keys.push_back(at::randn({1, lengths[row] + 1, kKeyHeads, kHeadWidth}).to(dtype));
    step.row_values.push_back(at::randn({1, lengths[row] + 1, kKeyHeads, kHeadWidth}).to(dtype));
    const auto place = static_cast<int64_t>(row);
    step.keys.narrow(0, place, 1)
        .narrow(2, 0, lengths[row])
        .copy_(step.row_keys[row].narrow(1, 0, lengths[row]).transpose(1, 2));
    step.values.narrow(0, place, 1)
        .narrow(2, 0, lengths[row])
        .copy_(step.row_values[row].narrow(1, 0, lengths[row]).transpose(1, 2));
  }
  step.places = make_places(lengths, 1, at::kCPU);
  std::vector<at::Tensor> new_keys, new_values;
  for (size_t row = 0; row < lengths.size(); ++row) {
    new_keys.push_back(step.row_keys[row].narrow(1, lengths[row], 1));
    new_values.push_back(step.row_values[row].narrow(1, lengths[row], 1));
  }
  store_in_cache(step.keys, at::cat(new_keys), step.places);
  store_in_cache(step.values, at::cat(new_values), step.places);
  return step;
}

void expect_rows(const Step& step, const at::Tensor& found, int64_t window, double tolerance) {
  for (int64_t row = 0; row < 3; ++row) {
    AttentionOptions options;
    options.causal = true;
    options.window = window;
    const auto place = static_cast<size_t>(row);
    const auto expected = attention(step.query.narrow(0, row, 1), step.row_keys[place],
                                    step.row_values[place], options);
    EXPECT_TRUE(at::allclose(found.narrow(0, row, 1), expected.flatten(2), tolerance, tolerance))
        << "row " << row;
  }
}

TEST(CachedAttention, OfUnequalRowsIsThatOfEachRowAlone) {
  for (const int64_t window : {0, 4}) {
    const auto step = make_step({0, 7, 19}, at::kFloat);
    expect_rows(
        step, cached_attention(step.query, step.keys, step.values, step.places, {.window = window}),
        window, 1e-5);
  }
}

TEST(CachedAttention, OfOtherDtypesIsTheSame) {
  for (const int64_t window : {0, 4}) {
    for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{3, 7, 19}, {5, 5, 5}}) {
      for (const auto dtype : {at::kBFloat16, at::kDouble}) {
        auto step = make_step(lengths, dtype);
        step.keys.nan_to_num_(3);
        step.values.nan_to_num_(3);
        expect_rows(
            step,
            cached_attention(step.query, step.keys, step.values, step.places, {.window = window}),
            window, dtype == at::kDouble ? 1e-9 : 2e-2);
      }
    }
  }
}

TEST(CachedAttention, AddsABiasPerHeadAndKey) {
  const auto step = make_step({6, 6, 6}, at::kFloat);
  const auto bias = at::randn({1, kHeads, 1, 7});
  const auto found = cached_attention(step.query, step.keys, step.values, step.places,
                                      {.scale = 1.0, .bias = bias});
  AttentionOptions options;
  options.scale = 1;
  options.bias = bias;
  for (int64_t row = 0; row < 3; ++row) {
    const auto place = static_cast<size_t>(row);
    const auto expected = attention(step.query.narrow(0, row, 1), step.row_keys[place],
                                    step.row_values[place], options);
    EXPECT_TRUE(at::allclose(found.narrow(0, row, 1), expected.flatten(2), 1e-5, 1e-5));
  }
}

TEST(CachedAttention, OfACompleteSourceSeesItsLength) {
  const auto step = make_step({4, 9, 2}, at::kFloat);
  const auto found = complete_attention(step.query, step.keys, step.values, {5, 10, 3}, {});
  expect_rows(step, found, 0, 1e-5);
}

}  // namespace
}  // namespace fullshard::ops
