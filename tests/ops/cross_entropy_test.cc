// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/loss/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/nn/gradient_hook.h"
#include "fullshard/ops/embedding.h"
#include "fullshard/tensor/pretence.h"
#include "tests/ops/gradients.h"

namespace fullshard::ops {
namespace {

constexpr int64_t kRows = 10, kHiddenWidth = 6, kVocabulary = 37;

struct Head {
  at::Tensor hidden = at::randn({2, 5, kHiddenWidth});
  at::Tensor weight = at::randn({kVocabulary, kHiddenWidth});
  at::Tensor bias = at::randn({kVocabulary});
  at::Tensor labels = at::randint(0, kVocabulary, {2, 5}, at::kLong);
};

at::Tensor torchs_loss(const Inputs& in, const at::Tensor& labels,
                       const CrossEntropyOptions& options) {
  const auto bias = in.size() > 2 ? std::optional(in[2]) : std::nullopt;
  const auto logits = at::linear(in[0] * options.scale, in[1], bias);
  return at::cross_entropy_loss(logits.reshape({-1, in[1].size(0)}), labels.reshape({-1}), {},
                                at::Reduction::Mean, options.ignore_index, options.label_smoothing);
}

Operator own_loss(const at::Tensor& labels, const CrossEntropyOptions& options) {
  return [=](const Inputs& in) {
    return linear_cross_entropy(in[0], in[1], in.size() > 2 ? in[2] : at::Tensor(), labels,
                                options);
  };
}

// One chunk and several; gradients kept from forward, or computed in backward.
std::vector<CrossEntropyOptions> plans() {
  return {
      {}, {.chunk_rows = 3}, {.chunk_rows = 3, .largest_kept_bytes = 0}, {.largest_kept_bytes = 0}};
}

// Under an upstream gradient of 3, with and without bias, in every number of chunks.
void expect_torchs(const Head& head, CrossEntropyOptions options) {
  auto all = plans();
  for (const int64_t chunk : {1, 9, 10, 64}) all.push_back({.chunk_rows = chunk});
  for (const auto& plan : all) {
    options.chunk_rows = plan.chunk_rows;
    options.largest_kept_bytes = plan.largest_kept_bytes;
    SCOPED_TRACE(testing::Message() << "chunks of " << plan.chunk_rows);
    const auto wanted = [&](const Inputs& in) { return torchs_loss(in, head.labels, options); };
    const auto factor = at::full({}, 3.0);
    const auto function = own_loss(head.labels, options);
    expect_same(function, wanted, {head.hidden, head.weight}, factor, at::kFloat, 1e-5);
    expect_same(function, wanted, {head.hidden, head.weight, head.bias}, factor, at::kFloat, 1e-5);
    expect_same(function, wanted, {head.hidden, head.weight, head.bias}, factor, at::kDouble,
                1e-12);
  }
}

TEST(LinearCrossEntropy, EqualsTorchsWithItsGradients) { expect_torchs({}, {}); }

// As a bias that rules classes out makes them.
TEST(LinearCrossEntropy, TakesClassesWithoutProbability) {
  Head head;
  head.bias.narrow(0, 0, 30).fill_(-std::numeric_limits<float>::infinity());
  head.labels = at::randint(30, kVocabulary, {2, 5}, at::kLong);
  expect_torchs(head, {});
}

TEST(LinearCrossEntropy, CountsOnlyRowsWithALabel) {
  Head head;
  head.labels.view({-1}).slice(0, 1, 8, 3).fill_(-100);
  expect_torchs(head, {});
  head.labels.masked_fill_(head.labels.eq(-100), 5);
  expect_torchs(head, {.ignore_index = 5});
}

TEST(LinearCrossEntropy, SmoothsLabelsAsTorchDoes) {
  Head head;
  head.labels[0][3] = -100;
  expect_torchs(head, {.label_smoothing = 0.1});
  expect_torchs(head, {.label_smoothing = 1.0});
}

TEST(LinearCrossEntropy, ScalesTheLogits) { expect_torchs({}, {.scale = 0.125}); }

TEST(LinearCrossEntropy, HasTheSlopesOfItsValues) {
  Head head;
  head.labels[1][2] = -100;
  expect_slopes(own_loss(head.labels, {.label_smoothing = 0.2, .scale = 0.5, .chunk_rows = 4}),
                {head.hidden, head.weight, head.bias}, at::full({}, 2.0));
}

TEST(LinearCrossEntropy, TakesVocabulariesAroundTheLanes) {
  for (const int64_t vocabulary : {1, 2, 31, 32, 33, 64, 1000}) {
    Head head;
    head.weight = at::randn({vocabulary, kHiddenWidth});
    head.labels = at::randint(0, vocabulary, {2, 5}, at::kLong);
    const auto wanted = [&](const Inputs& in) { return torchs_loss(in, head.labels, {}); };
    expect_same(own_loss(head.labels, {}), wanted, {head.hidden, head.weight}, at::ones({}),
                at::kFloat, 1e-5);
  }
}

TEST(LinearCrossEntropy, IsZeroWithoutLabels) {
  Head head;
  head.labels.fill_(-100);
  for (const auto& plan : plans()) {
    const auto inputs = leaves({head.hidden, head.weight, head.bias}, at::kFloat);
    const auto found = run_operator(own_loss(head.labels, plan), inputs, at::ones({}));
    EXPECT_EQ(found.output.item<float>(), 0);
    for (const auto& gradient : found.gradients) EXPECT_EQ(gradient.abs().sum().item<float>(), 0);
  }
}

TEST(LinearCrossEntropy, TakesAnEmptyBatch) {
  const Head head;
  const auto inputs = leaves({at::zeros({0, kHiddenWidth}), head.weight}, at::kFloat);
  const auto found = run_operator(own_loss(at::zeros({0}, at::kLong), {}), inputs, at::ones({}));
  EXPECT_EQ(found.output.item<float>(), 0);
  EXPECT_TRUE(at::equal(found.gradients[1], at::zeros({kVocabulary, kHiddenWidth})));
}

TEST(LinearCrossEntropy, TakesBf16WithAnFp32Loss) {
  const Head head;
  for (const auto& plan : plans()) {
    const auto narrow = leaves({head.hidden, head.weight, head.bias}, at::kBFloat16);
    const auto wide = leaves(narrow, at::kDouble);
    const auto found = run_operator(own_loss(head.labels, plan), narrow, at::ones({}));
    const auto wanted = run_operator(
        [&](const Inputs& in) { return torchs_loss(in, head.labels, {}); }, wide, at::ones({}));
    EXPECT_EQ(found.output.scalar_type(), at::kFloat);
    EXPECT_NEAR(found.output.item<double>(), wanted.output.item<double>(), 0.02);
    for (size_t i = 0; i < narrow.size(); ++i) {
      EXPECT_EQ(found.gradients[i].scalar_type(), at::kBFloat16);
      EXPECT_LE(largest_difference(found.gradients[i], wanted.gradients[i]), 0.01);
    }
  }
}

// Softmax minus target is kept without the division by the number of labels: what a loss scale has
// to save from underflow does not get lost before the scale arrives.
TEST(LinearCrossEntropy, KeepsTinyFp16GradientsForTheLossScale) {
  auto hidden = at::full({1000, 2}, 0.01).to(at::kHalf).requires_grad_();
  auto weight = (at::arange(200).view({100, 2}) * 1e-3).to(at::kHalf).requires_grad_();
  const auto labels = at::zeros({1000}, at::kLong);
  const auto scale = at::full({}, 65536.0f);
  for (const auto& plan : plans()) {
    const auto gradients = torch::autograd::grad(
        {linear_cross_entropy(hidden, weight, {}, labels, plan)}, {hidden, weight}, {scale});
    const auto wide = leaves({hidden, weight}, at::kDouble);
    const auto wanted =
        torch::autograd::grad({torchs_loss(wide, labels, {})}, wide, {scale.to(at::kDouble)});
    EXPECT_LE(largest_difference(gradients[0], wanted[0]),
              0.01 * wanted[0].abs().max().item<double>());
    EXPECT_LE(largest_difference(gradients[1], wanted[1]),
              0.01 * wanted[1].abs().max().item<double>());
  }
}

TEST(LinearCrossEntropy, GivesTheSameLossWithoutGradients) {
  const Head head;
  const auto inputs = leaves({head.hidden, head.weight, head.bias}, at::kFloat);
  const auto with = own_loss(head.labels, {})(inputs);
  at::NoGradGuard no_grad;
  const auto without = own_loss(head.labels, {})(inputs);
  EXPECT_FALSE(without.requires_grad());
  EXPECT_TRUE(at::equal(with, without));
}

TEST(LinearCrossEntropy, TakesOnlyTheGradientsThatAreAsked) {
  const Head head;
  auto hidden = head.hidden.clone().requires_grad_();
  nn::set_gradient_sink(hidden, {});
  const auto loss = linear_cross_entropy(hidden, head.weight, {}, head.labels);
  const auto wide = leaves({hidden, head.weight}, at::kFloat);
  const auto wanted = torch::autograd::grad({torchs_loss(wide, head.labels, {})}, wide);
  EXPECT_LE(largest_difference(torch::autograd::grad({loss}, {hidden})[0], wanted[0]), 1e-6);
  auto weight = head.weight.clone().requires_grad_();
  for (const auto& plan : plans()) {
    const auto own_loss = linear_cross_entropy(head.hidden, weight, {}, head.labels, plan);
    EXPECT_LE(largest_difference(torch::autograd::grad({own_loss}, {weight})[0], wanted[1]), 1e-6);
  }
}

TEST(LinearCrossEntropy, OverwritesTheSinkThenAddsToIt) {
  const Head head;
  for (const auto& plan : plans()) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      auto weight = head.weight.clone().requires_grad_();
      const auto loss = [&] {
        return linear_cross_entropy(head.hidden, weight, {}, head.labels, plan) * 4;
      };
      loss().backward();
      const auto expected = std::exchange(weight.mutable_grad(), at::Tensor());
      auto slot = at::full(weight.sizes(), 7.0, dtype);
      int opened = 0, fired = 0;
      nn::set_gradient_hook(weight, [&](const at::Tensor&) { ++fired; });
      nn::set_gradient_sink(weight, [&] { return nn::GradientSink{slot, opened++ > 0}; });
      loss().backward();
      EXPECT_EQ(fired, 1);
      EXPECT_FALSE(weight.grad().defined());
      EXPECT_LE(largest_difference(slot, expected), 1e-6);
      loss().backward();
      EXPECT_LE(largest_difference(slot, expected * 2), 1e-6);
      EXPECT_EQ(opened, 2);
    }
  }
}

TEST(LinearCrossEntropy, SharesItsWeightWithTheEmbedding) {
  const auto tokens = at::randint(0, kVocabulary, {2, 5}, at::kLong);
  const auto labels = at::randint(0, kVocabulary, {2, 5}, at::kLong);
  auto weight = at::randn({kVocabulary, kHiddenWidth}).requires_grad_();
  const auto wide = leaves({weight}, at::kDouble);
  const auto looked_up = wide[0].index({tokens});
  const auto expected =
      torch::autograd::grad({torchs_loss({looked_up, wide[0]}, labels, {})}, wide)[0];
  auto slot = at::full(weight.sizes(), 7.0);
  int opened = 0;
  nn::set_gradient_sink(weight, [&] { return nn::GradientSink{slot, opened++ > 0}; });
  linear_cross_entropy(fullshard::embedding(tokens, weight), weight, {}, labels).backward();
  EXPECT_EQ(opened, 2);
  EXPECT_LE(largest_difference(slot, expected), 1e-6);
}

TEST(LinearCrossEntropy, CanGoBackwardTwiceOnOneGraph) {
  const Head head;
  for (const auto& plan : plans()) {
    const auto inputs = leaves({head.hidden, head.weight}, at::kFloat);
    const auto loss = own_loss(head.labels, plan)(inputs);
    const auto first = torch::autograd::grad({loss}, inputs, {}, /*retain_graph=*/true);
    const auto second = torch::autograd::grad({loss}, inputs);
    EXPECT_TRUE(at::equal(first[0], second[0]));
    EXPECT_TRUE(at::equal(first[1], second[1]));
  }
}

class Meter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t delta, size_t, size_t, c10::Device) override {
    live_ += delta;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }
  int64_t live() const { return live_; }

 private:
  int64_t live_ = 0, peak_ = 0;
};

// Beside what is returned (the gradient of hidden): a chunk of logits, and the sum of the weight's
// gradient when there are several chunks.
TEST(LinearCrossEntropy, HoldsOneChunkOfLogits) {
  constexpr int64_t kMany = 64, kLarge = 5000, kNarrow = 8;
  constexpr int64_t kSumBytes = 4 * kLarge * kNarrow, kRowBytes = 4 * kLarge, kSmall = 64 << 10;
  struct Held {
    CrossEntropyOptions options;
    int64_t held, peak;
  };
  const Held cases[] = {
      {{.chunk_rows = 64}, 64 * kRowBytes, 64 * kRowBytes},
      {{.chunk_rows = 16}, kSumBytes, 16 * kRowBytes + kSumBytes},
      {{.chunk_rows = 16, .largest_kept_bytes = kSumBytes - 1}, 0, 16 * kRowBytes},
      {{.chunk_rows = 64, .largest_kept_bytes = 0}, 0, 64 * kRowBytes}};
  const auto labels = at::randint(0, kLarge, {kMany}, at::kLong);
  auto hidden = at::randn({kMany, kNarrow}).requires_grad_();
  auto weight = at::randn({kLarge, kNarrow}).requires_grad_();
  auto slot = at::zeros(weight.sizes());
  nn::set_gradient_sink(weight, [&] { return nn::GradientSink{slot, false}; });
  for (const auto& [options, held, peak] : cases) {
    const auto meter = std::make_shared<Meter>();
    {
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
      const auto loss = linear_cross_entropy(hidden, weight, {}, labels, options);
      EXPECT_LT(meter->live(), held + kSmall);
      loss.backward();
      EXPECT_LT(meter->live(), kSmall) << "the graph is alive, what it saved is not";
    }
    EXPECT_LT(meter->peak(), peak + kSmall);
    EXPECT_GE(meter->peak(), peak);
  }
}

TEST(LinearCrossEntropy, HoldsOneChunkOfLogitsWithoutGradients) {
  const auto labels = at::randint(0, 5000, {64}, at::kLong);
  const auto hidden = at::randn({64, 8}), weight = at::randn({5000, 8});
  const auto meter = std::make_shared<Meter>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    linear_cross_entropy(hidden, weight, {}, labels, {.chunk_rows = 8});
  }
  EXPECT_LT(meter->peak(), 4 * 8 * 5000 + (64 << 10));
}

// Four million chunks, which one by one would take a core minutes.
TEST(LinearCrossEntropy, IsPlannedWithoutWalkingAllOfItsChunks) {
  constexpr int64_t kManyRows = int64_t{1} << 22;
  const std::clock_t before = std::clock();
  const tensor::PretenceScope pretence;
  const auto hidden = at::empty({kManyRows, 8}).requires_grad_();
  const auto weight = at::empty({100, 8}).requires_grad_();
  const auto labels = at::zeros({kManyRows}, at::kLong);
  linear_cross_entropy(hidden, weight, {}, labels, {.chunk_rows = 1}).backward();
  EXPECT_EQ(hidden.grad().numel(), hidden.numel());
  EXPECT_LT(std::clock() - before, 20 * CLOCKS_PER_SEC);
}

TEST(LinearCrossEntropy, GivesTheSameLossOnOneAndTwoThreads) {
  const auto labels = at::randint(0, 3000, {40}, at::kLong);
  const Inputs inputs = leaves({at::randn({40, 16}), at::randn({3000, 16})}, at::kFloat);
  const auto on = [&](int threads) {
    at::set_num_threads(threads);
    return run_operator(own_loss(labels, {}), inputs, at::ones({}));
  };
  const int before = at::get_num_threads();
  const auto two = on(2), one = on(1);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one.output, two.output));
  EXPECT_LE(largest_difference(one.gradients[1], two.gradients[1]), 1e-7);
}

TEST(LinearCrossEntropy, TakesStridedInputs) {
  const Head head;
  const auto wanted = [&](const Inputs& in) {
    return torchs_loss({in[0].transpose(0, 1), in[1].t()}, head.labels.t(), {});
  };
  const auto function = [&](const Inputs& in) {
    return linear_cross_entropy(in[0].transpose(0, 1), in[1].t(), {}, head.labels.t());
  };
  expect_same(function, wanted, {head.hidden, head.weight.t().contiguous()}, at::ones({}),
              at::kFloat, 1e-5);
}

TEST(LinearCrossEntropy, RefusesSecondDerivatives) {
  const Head head;
  const auto inputs = leaves({head.hidden, head.weight}, at::kFloat);
  const auto loss = own_loss(head.labels, {})(inputs);
  EXPECT_THAT([&] { torch::autograd::grad({loss}, inputs, {}, true, true); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("second derivatives")));
}

TEST(LinearCrossEntropy, NamesALabelOutsideTheVocabulary) {
  Head head;
  head.labels[1][1] = kVocabulary;
  try {
    linear_cross_entropy(head.hidden, head.weight, {}, head.labels);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 4);
    EXPECT_STREQ(error.what(),
                 "linear_cross_entropy: label 37 of row 6 is outside the vocabulary; expected 0 to "
                 "36, or -100 for none");
  }
}

}  // namespace
}  // namespace fullshard::ops
