// SPDX-License-Identifier: Apache-2.0
// Norms of many pieces at once, and the clip factor that never leaves the device.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fullshard/engine/gradients/device_norm.h"
#include "fullshard/engine/gradients/grad_norm_kernels.h"
#include "tests/gpu.h"
#include "tests/optim_cuda/step_arrays.h"

namespace fullshard::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

// Tensor i is pieces[i]; the last of the tensors has none.
struct Gradients {
  std::vector<at::Tensor> cpu;
  std::vector<engine::GradientPiece> cuda;
  int64_t num_tensors() const { return static_cast<int64_t>(cpu.size()) + 1; }
};

Gradients random_gradients(at::ScalarType dtype, int shift = 0) {
  Gradients gradients;
  auto generator = at::detail::createCPUGenerator(9);
  for (const auto numel : awkward_sizes()) {
    const auto values = at::randn({numel + shift}, generator).to(dtype);
    gradients.cuda.push_back(
        {values.to(kGpu).narrow(0, shift, numel), static_cast<int64_t>(gradients.cpu.size())});
    gradients.cpu.push_back(values.narrow(0, shift, numel));
  }
  return gradients;
}

at::Tensor norms(engine::NormKind kind, const Gradients& gradients) {
  return engine::norms_on_device(kind, gradients.cuda, gradients.num_tensors(), kGpu).cpu();
}

TEST(CudaNorm, SumsSquaresOfEveryPiece) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const int shift : {0, 1, 3}) {
      const auto gradients = random_gradients(dtype, shift);
      const auto found = norms(engine::NormKind::sum_of_squares, gradients);
      for (size_t i = 0; i < gradients.cpu.size(); ++i) {
        const double expected = gradients.cpu[i].to(at::kDouble).square().sum().item<double>();
        EXPECT_NEAR(found[static_cast<int64_t>(i)].item<double>() / expected, 1, 1e-12)
            << c10::toString(dtype) << ", " << gradients.cpu[i].numel() << " elements from "
            << shift;
      }
      EXPECT_EQ(found[-1].item<double>(), 0);
    }
  }
}

TEST(CudaNorm, AgreesWithTheCpuInFp32) {
  const auto gradients = random_gradients(at::kFloat);
  const auto found = norms(engine::NormKind::sum_of_squares, gradients);
  for (size_t i = 0; i < gradients.cpu.size(); ++i) {
    const auto expected =
        engine::sum_of_squares(gradients.cpu[i].const_data_ptr<float>(), gradients.cpu[i].numel());
    EXPECT_FLOAT_EQ(static_cast<float>(std::sqrt(found[static_cast<int64_t>(i)].item<double>())),
                    static_cast<float>(std::sqrt(expected)));
  }
}

TEST(CudaNorm, FindsTheLargestValue) {
  for (const int shift : {0, 1}) {
    const auto gradients = random_gradients(at::kFloat, shift);
    const auto found = norms(engine::NormKind::largest, gradients);
    for (size_t i = 0; i < gradients.cpu.size(); ++i) {
      EXPECT_EQ(found[static_cast<int64_t>(i)].item<float>(),
                gradients.cpu[i].abs().max().item<float>())
          << gradients.cpu[i].numel();
    }
  }
}

TEST(CudaNorm, IsTheSameInEveryRun) {
  const auto gradients = random_gradients(at::kFloat);
  const auto first = norms(engine::NormKind::sum_of_squares, gradients);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(at::equal(norms(engine::NormKind::sum_of_squares, gradients), first)) << i;
  }
}

TEST(CudaNorm, ShowsWhichPieceIsNotFinite) {
  for (const double bad : {kInfinity, -kInfinity, kNan}) {
    for (const auto kind : {engine::NormKind::sum_of_squares, engine::NormKind::largest}) {
      auto gradients = random_gradients(at::kFloat);
      const size_t place = gradients.cuda.size() - 2;
      gradients.cuda[place].values[12'345] = bad;
      const auto found = norms(kind, gradients);
      for (size_t i = 0; i < gradients.cuda.size(); ++i) {
        EXPECT_EQ(std::isfinite(found[static_cast<int64_t>(i)].item<double>()), i != place)
            << "piece " << i << " with " << bad;
      }
    }
  }
}

struct ClipCase {
  engine::NormKind kind;
  std::vector<double> numbers;
  engine::ClipSettings settings;
  double norm, factor;
};

TEST(CudaClip, IsWhatTheHostComputes) {
  const auto coefficient = [](float max_norm, double norm) {
    return static_cast<double>(std::min(1.0f, max_norm / (static_cast<float>(norm) + 1e-6f)));
  };
  const std::vector<ClipCase> cases = {
      {engine::NormKind::sum_of_squares, {9, 16}, {1.0f, 1}, 5, coefficient(1, 5)},
      {engine::NormKind::sum_of_squares, {9, 16}, {10.0f, 1}, 5, 1},
      {engine::NormKind::sum_of_squares, {9, 16}, {0, 1}, 5, 1},
      {engine::NormKind::sum_of_squares, {9, 16}, {1.0f, 1024}, 5.0 / 1024, 1.0 / 1024},
      {engine::NormKind::largest, {3, 4, 1}, {1.0f, 2}, 2, coefficient(1, 2) / 2},
  };
  for (const auto& one : cases) {
    const auto outcome = engine::clip_factor_on_device(
                             one.kind, at::tensor(one.numbers, at::kDouble).to(kGpu), one.settings)
                             .cpu();
    EXPECT_EQ(outcome[0].item<double>(), one.norm);
    EXPECT_EQ(outcome[1].item<double>(), one.factor);
  }
}

TEST(CudaClip, IsNotANumberWhenTheNormIsNotFinite) {
  for (const double bad : {kInfinity, kNan}) {
    for (const auto kind : {engine::NormKind::sum_of_squares, engine::NormKind::largest}) {
      const auto numbers = at::tensor({1.0, bad, 2.0}, at::kDouble).to(kGpu);
      const auto outcome = engine::clip_factor_on_device(kind, numbers, {1.0f, 1}).cpu();
      EXPECT_FALSE(std::isfinite(outcome[0].item<double>())) << bad;
      EXPECT_TRUE(std::isnan(outcome[1].item<double>())) << bad;
    }
  }
}

}  // namespace
}  // namespace fullshard::testing
