// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/product_precision.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "fullshard/nn/unit.h"

namespace fullshard::nn {
namespace {

// Notes in which precision its layers would multiply, and calls what it holds.
struct NotingImpl : Unit {
  explicit NotingImpl(std::vector<ProductPrecision>* seen)
      : linear(register_module("linear", torch::nn::Linear(2, 2))), seen_(seen) {}

  at::Tensor forward(const at::Tensor& x) {
    seen_->push_back(product_precision());
    auto y = linear(x);
    if (inner) y = inner->forward(y);
    seen_->push_back(product_precision());
    return y;
  }

  torch::nn::Linear linear;
  std::shared_ptr<NotingImpl> inner;

 private:
  std::vector<ProductPrecision>* seen_;
};
FULLSHARD_UNIT(Noting);

using enum ProductPrecision;

TEST(ProductPrecision, IsThatOfTheUnitWhoseForwardRuns) {
  std::vector<ProductPrecision> seen;
  Noting unit(&seen);
  unit(at::ones({2, 2}));
  unit->set_products(fp8);
  EXPECT_FALSE(unit->is_plain());
  unit(at::ones({2, 2}));
  EXPECT_EQ(seen, (std::vector{operands, operands, fp8, fp8}));
  EXPECT_EQ(product_precision(), operands);
}

TEST(ProductPrecision, IsThereAgainWhenAForwardIsRecomputed) {
  std::vector<ProductPrecision> seen;
  Noting unit(&seen);
  unit->set_products(fp8_e4m3);
  unit->set_recompute(true);
  const auto x = at::ones({2, 2}).requires_grad_(true);
  unit(x).sum().backward();
  EXPECT_EQ(seen, (std::vector{fp8_e4m3, fp8_e4m3, fp8_e4m3, fp8_e4m3}));
  EXPECT_EQ(product_precision(), operands);
}

TEST(ProductPrecision, ScopesNestAndEndWithAnError) {
  const ProductPrecisionScope outer(fp8);
  try {
    const ProductPrecisionScope inner(operands);
    EXPECT_EQ(product_precision(), operands);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(product_precision(), fp8);
}

}  // namespace
}  // namespace fullshard::nn
