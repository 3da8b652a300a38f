// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/deferred.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/transformerlayer.h>

#include <memory>
#include <thread>

#include "fullshard/base/error.h"
#include "fullshard/nn/unit.h"

namespace fullshard::testing {
namespace {

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

struct NetworkImpl : Unit {
  explicit NetworkImpl(int64_t width) {
    linear = register_module("linear", torch::nn::Linear(width, 2 * width));
    weight = register_parameter("weight", at::randn({width, 3}));
    torch::nn::init::normal_(weight);
    torch::nn::init::orthogonal_(weight);
    {
      const RealScope real;
      table = register_buffer("table", at::arange(5) * 2);
    }
    counts = register_buffer("counts", at::zeros({width}));
  }
  at::Tensor forward(at::Tensor x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
  at::Tensor weight, table, counts;
};
FULLSHARD_UNIT(Network);

TEST(Deferred, FactoriesGiveMetaTensorsOfTheRightShapeAndDtype) {
  const DeferredScope scope;
  const auto options = at::TensorOptions().dtype(at::kBFloat16);
  const auto strided = at::empty_strided({2, 3}, {1, 2}, options);
  EXPECT_EQ(strided.strides().vec(), (std::vector<int64_t>{1, 2}));
  for (const auto& tensor :
       {at::empty({2, 3}, options), at::zeros({2, 3}, options), at::ones({2, 3}, options),
        at::full({2, 3}, 7, options), at::randn({2, 3}, options), at::eye(2, 3, options),
        at::randint(5, {2, 3}, options), at::zeros_like(at::empty({2, 3}, options)),
        at::arange(6, options).view({2, 3}), at::linspace(0, 1, 6, options).view({2, 3}),
        strided}) {
    EXPECT_TRUE(tensor.is_meta());
    EXPECT_EQ(tensor.sizes().vec(), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
  }
}

TEST(Deferred, ArraysOfValuesCannotBeDeferredAndSaySo) {
  const DeferredScope scope;
  EXPECT_THROW(at::tensor({1.0, 2.0}), c10::Error);
  const RealScope real;
  EXPECT_EQ(at::tensor({1.0, 2.0}).sum().item<double>(), 3);
}

TEST(Deferred, TheScopeEndsAndBelongsToItsThread) {
  {
    const DeferredScope scope;
    std::thread([] { EXPECT_FALSE(at::empty({1}).is_meta()); }).join();
    const DeferredScope inner;
  }
  EXPECT_FALSE(at::empty({1}).is_meta());
}

TEST(Deferred, BuildsPlainModulesOfAnySizeWithoutRandomNumbers) {
  const auto before = generator_state();
  const auto module = build_deferred([] {
    constexpr int64_t kHuge = int64_t{1} << 20;  // 4 TiB each
    auto made =
        torch::nn::Sequential(torch::nn::Linear(kHuge, kHuge), torch::nn::Embedding(kHuge, kHuge),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({kHuge})));
    made->push_back(torch::nn::BatchNorm1d(kHuge));
    made->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(kHuge, kHuge, 3)));
    made->push_back(torch::nn::TransformerEncoderLayer(kHuge, 8));
    return made;
  });
  for (const auto& parameter : module->parameters()) {
    EXPECT_TRUE(parameter.is_meta());
    EXPECT_TRUE(parameter.requires_grad());
  }
  EXPECT_TRUE(is_deferred(*module));
  EXPECT_TRUE(at::equal(generator_state(), before));
}

TEST(Deferred, KeepsWhatARealScopeMade) {
  auto model = deferred<Network>(4);
  EXPECT_TRUE(at::equal(model->table, at::arange(5) * 2));
  EXPECT_TRUE(model->counts.is_meta());
  EXPECT_TRUE(is_deferred(*model));
  EXPECT_FALSE(is_deferred(*Network(4)));
}

TEST(Deferred, SharedPointersToModulesAreBuiltToo) {
  const auto module = build_deferred([] { return std::make_shared<torch::nn::LinearImpl>(3, 4); });
  EXPECT_TRUE(module->weight.is_meta());
}

TEST(Materialise, IsSeenByEveryHandleAndTrains) {
  auto linear = deferred<torch::nn::Linear>(3, 4);
  const auto handle = linear->weight;
  for (auto& parameter : linear->parameters()) {
    materialise(parameter);
    at::NoGradGuard no_grad;
    parameter.fill_(2);
  }
  EXPECT_FALSE(is_deferred(*linear));
  EXPECT_TRUE(handle.is_same(linear->weight));
  EXPECT_TRUE(handle.device().is_cpu());
  EXPECT_EQ(handle.sum().item<float>(), 24);
  EXPECT_TRUE(handle.is_leaf());
  linear(at::ones({2, 3})).sum().backward();
  EXPECT_EQ(handle.grad().sum().item<float>(), 24);
}

TEST(Materialise, LeavesOrdinaryTensorsAloneEvenInsideAScope) {
  auto tensor = at::ones({3});
  const auto* memory = tensor.const_data_ptr();
  auto later = build_deferred([] { return at::ones({3}); });
  const DeferredScope scope;
  materialise(tensor);
  EXPECT_EQ(tensor.const_data_ptr(), memory);
  materialise(later);
  EXPECT_TRUE(later.device().is_cpu());
}

TEST(Materialise, RefusesMemoryOfAnotherShape) {
  auto tensor = build_deferred([] { return at::ones({3}); });
  EXPECT_THROW(materialise_as(tensor, at::ones({4})), Error);
  EXPECT_THROW(materialise_as(tensor, at::ones({3}, at::kDouble)), Error);
}

}  // namespace
}  // namespace fullshard::testing
