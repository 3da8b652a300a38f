// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/entropy_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/emulated_cuda/kernel_run.h"

namespace fullshard::emulation {
namespace {

constexpr int64_t kIgnored = -100;

struct EntropyCase {
  at::ScalarType dtype;
  int64_t vocabulary, room;  // elements between rows
  double smoothing;
};

std::ostream& operator<<(std::ostream& to, const EntropyCase& given) {
  return to << "vocabulary " << given.vocabulary << " and " << given.room << " " << given.dtype
            << ", smoothed by " << given.smoothing;
}

std::vector<EntropyCase> entropy_cases() {
  std::vector<EntropyCase> cases;
  for (const auto dtype : kKernelDtypes) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const auto& [vocabulary, room] :
           {std::pair<int64_t, int64_t>{3, 5}, {8, 0}, {1001, 7}, {9000, 8}}) {
        cases.push_back({dtype, vocabulary, room, smoothing});
      }
    }
  }
  return cases;
}

// Row 2 is ignored, and the last label is the vocabulary's last.
at::Tensor some_labels(int64_t rows, int64_t vocabulary) {
  auto labels = at::randint(vocabulary, {rows}, at::kLong);
  labels[2] = kIgnored;
  labels[rows - 1] = vocabulary - 1;
  return labels;
}

struct EntropyResults {
  Output logits, losses;
};

EntropyResults run_entropy(const EntropyCase& given, const at::Tensor& logits,
                           const at::Tensor& labels, bool wants_gradient) {
  const int64_t rows = labels.numel(), stride = given.vocabulary + given.room;
  const Output own({rows, stride}, given.dtype), losses({rows}, at::kFloat);
  own.values().narrow(1, 0, given.vocabulary).copy_(logits);
  ops::entropy_rows({.dtype = kernel_dtype(given.dtype),
                     .logits = own.data(),
                     .losses = losses.data<float>(),
                     .labels = labels.data_ptr<int64_t>(),
                     .num_rows = rows,
                     .vocabulary = given.vocabulary,
                     .row_stride = stride,
                     .ignore_index = kIgnored,
                     .smoothing = static_cast<float>(given.smoothing),
                     .wants_gradient = wants_gradient},
                    kNoStream);
  return {own, losses};
}

TEST(EmulatedEntropy, IsTheLossAndLeavesItsGradient) {
  for (const auto& given : entropy_cases()) {
    SCOPED_TRACE(::testing::Message() << given);
    const int64_t rows = 4;
    const auto logits = (at::randn({rows, given.vocabulary}) * 5).to(given.dtype);
    const auto labels = some_labels(rows, given.vocabulary);
    auto exact = logits.to(at::kDouble).requires_grad_();
    const auto losses =
        at::cross_entropy_loss(exact, labels, {}, at::Reduction::None, kIgnored, given.smoothing);
    losses.sum().backward();
    const auto found = run_in_orders([&] {
      const auto both = run_entropy(given, logits, labels, true);
      const auto alone = run_entropy(given, logits, labels, false);
      return Outputs{both.losses, both.logits, alone.losses, alone.logits};
    });
    expect_near(found[0], losses, 1e-5, "losses");
    expect_near(found[1].narrow(1, 0, given.vocabulary), exact.grad(), tolerance_of(given.dtype),
                "gradient");
    EXPECT_TRUE(at::equal(found[2], found[0])) << "losses without a gradient";
    EXPECT_TRUE(at::equal(found[3].narrow(1, 0, given.vocabulary), logits)) << "logits alone";
    for (const auto& whole : {found[1], found[3]}) {
      EXPECT_TRUE(whole.narrow(1, given.vocabulary, given.room).isnan().all().item<bool>())
          << "between the rows";
    }
  }
}

TEST(EmulatedEntropy, IsNaNForALabelOutsideTheVocabulary) {
  for (const int64_t label : {-1, 1001}) {
    auto labels = some_labels(4, 1001);
    labels[0] = label;
    const auto found = run_entropy({at::kBFloat16, 1001, 7, 0}, at::randn({4, 1001}), labels, true);
    EXPECT_TRUE(std::isnan(found.losses.values()[0].item<float>())) << label;
    EXPECT_FALSE(found.losses.values().narrow(0, 1, 3).isnan().any().item<bool>());
  }
}

// Masked classes, as a logits processor leaves them, and large ones do not spoil the rest.
TEST(EmulatedEntropy, TakesInfinitiesAndLargeLogits) {
  auto logits = at::randn({4, 1000}) * 3;
  logits.narrow(1, 0, 600).fill_(-std::numeric_limits<float>::infinity());
  logits.narrow(1, 600, 400).add_(3e4);
  const auto labels = at::full({4}, 700, at::kLong);
  auto exact = logits.to(at::kDouble).requires_grad_();
  const auto losses = at::cross_entropy_loss(exact, labels, {}, at::Reduction::None);
  losses.sum().backward();
  const auto found = run_entropy({at::kFloat, 1000, 0, 0}, logits, labels, true);
  expect_near(found.losses.values(), losses, 1e-3, "losses");  // of numbers with steps of 0.002
  expect_near(found.logits.values(), exact.grad(), 2e-3, "gradient");
}

}  // namespace
}  // namespace fullshard::emulation
