// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/loss/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "fullshard/nn/gradient_hook.h"
#include "tests/errors.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

class DeviceCrossEntropy : public OnDevice {};

at::Tensor some_labels(int64_t rows, int64_t vocabulary) {
  auto labels = at::randint(vocabulary, {rows}, at::TensorOptions(at::kLong).device(at::kCUDA));
  if (rows > 2) labels[1].fill_(-100);
  labels[rows - 1].fill_(vocabulary - 1);
  return labels;
}

struct Losses {
  at::Tensor loss;
  Inputs gradients;
};

Losses losses_of(const Inputs& in, const at::Tensor& labels, const CrossEntropyOptions& options) {
  const auto loss =
      linear_cross_entropy(in[0], in[1], in.size() > 2 ? in[2] : at::Tensor(), labels, options);
  return {loss.detach(), torch::autograd::grad({loss * 3}, in)};
}

void expect_wide(const Inputs& inputs, const at::Tensor& labels, const CrossEntropyOptions& options,
                 at::ScalarType dtype) {
  const auto narrow = leaves(inputs, dtype);
  const auto found = losses_of(narrow, labels, options);
  const auto wanted = losses_of(leaves(narrow, at::kDouble), labels, options);
  EXPECT_EQ(found.loss.scalar_type(), at::kFloat);
  const bool is_wide = dtype == at::kFloat;
  expect_close(found.loss, wanted.loss, is_wide ? 1e-5 : 1e-2, "loss");
  for (size_t i = 0; i < inputs.size(); ++i) {
    expect_close(found.gradients[i], wanted.gradients[i], is_wide ? 3e-5 : 2e-2,
                 "gradient " + std::to_string(i));
  }
  const auto again = losses_of(narrow, labels, options);
  EXPECT_TRUE(at::equal(again.loss, found.loss)) << "other bits on a second run";
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(at::equal(again.gradients[i], found.gradients[i])) << "other bits, gradient " << i;
  }
}

TEST_F(DeviceCrossEntropy, EqualsTheWideExpression) {
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t vocabulary : {10, 1000, 1027, 50257}) {
      for (const int64_t rows : {1, 7, 90}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows, " << vocabulary << " " << dtype);
        const Inputs inputs{device_randn({rows, 64}), device_randn({vocabulary, 64}) * 0.2,
                            device_randn({vocabulary})};
        expect_wide({inputs[0], inputs[1]}, some_labels(rows, vocabulary), {}, dtype);
        expect_wide(inputs, some_labels(rows, vocabulary),
                    {.label_smoothing = 0.1, .scale = 0.7, .chunk_rows = 32}, dtype);
        expect_wide(inputs, some_labels(rows, vocabulary),
                    {.chunk_rows = 40, .largest_kept_bytes = 0}, dtype);
      }
    }
  }
}

TEST_F(DeviceCrossEntropy, ServesAVocabularyOf256Thousand) {
  expect_wide({device_randn({33, 32}), device_randn({256001, 32}) * 0.3}, some_labels(33, 256001),
              {}, at::kBFloat16);
}

TEST_F(DeviceCrossEntropy, SumsTheWeightsGradientIntoItsSink) {
  const auto inputs =
      leaves({device_randn({100, 64}), device_randn({1003, 64}) * 0.2}, at::kBFloat16);
  const auto labels = some_labels(100, 1003);
  const auto wanted = losses_of(leaves(inputs, at::kDouble), labels, {}).gradients[1];
  for (const auto& options : {CrossEntropyOptions{}, CrossEntropyOptions{.chunk_rows = 30},
                              CrossEntropyOptions{.chunk_rows = 30, .largest_kept_bytes = 0}}) {
    const auto slot =
        at::zeros({1003, 64}, inputs[1].options().dtype(at::kFloat).requires_grad(false));
    bool accumulates = false;
    nn::set_gradient_sink(inputs[1], [&] { return nn::GradientSink{slot, accumulates}; });
    for (int pass = 1; pass <= 2; ++pass) {
      (linear_cross_entropy(inputs[0], inputs[1], {}, labels, options) * 3).backward();
      expect_close(slot, wanted * pass, 1e-2, "sink");
      accumulates = true;
    }
    nn::set_gradient_sink(inputs[1], {});
  }
}

TEST_F(DeviceCrossEntropy, IsZeroWithoutLabelsAndNanForAnUnknownOne) {
  auto hidden = device_randn({4, 16}).requires_grad_();
  auto weight = device_randn({9, 16}).requires_grad_();
  const auto none = at::full({4}, -100, at::TensorOptions(at::kLong).device(at::kCUDA));
  auto loss = linear_cross_entropy(hidden, weight, {}, none);
  loss.backward();
  EXPECT_EQ(loss.item<float>(), 0);
  EXPECT_EQ(weight.grad().abs().max().item<float>(), 0);
  auto wrong = none.clone();
  wrong[2].fill_(9);
  EXPECT_TRUE(std::isnan(linear_cross_entropy(hidden, weight, {}, wrong).item<float>()));
}

TEST_F(DeviceCrossEntropy, RefusesLabelsOfTheHost) {
  EXPECT_EQ(testing::message_of([] {
              linear_cross_entropy(device_randn({4, 16}), device_randn({9, 16}), {},
                                   at::zeros({4}, at::kLong));
            }),
            "linear_cross_entropy: labels lie on cpu, hidden on cuda:0; move the labels there "
            "first");
}

}  // namespace
}  // namespace fullshard::ops
