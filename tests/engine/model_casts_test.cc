// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/model_casts.h"

#include <gtest/gtest.h>

#include "fullshard/base/error.h"
#include "tests/engine/assembled_model.h"

namespace fullshard::engine {
namespace {

std::string dtype_error_of(const ShardOptions& options) {
  try {
    check_dtypes(options, at::kCPU);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return {};
}

TEST(ModelCasts, ProductsAreThoseOfBlocksAlone) {
  testing::ScaledTwice model;
  model->b->set_vocabulary_part(nn::VocabularyPart::head);
  ShardOptions options;
  options.products = ProductPrecision::fp8;
  for (const auto& policy : {WrapPolicy::classes({"ScaleUnit"}), WrapPolicy::none()}) {
    const auto plan = plan_units(*model, policy, "");
    set_forward_casts(plan, options);
    EXPECT_EQ(model->products(), ProductPrecision::operands);
    EXPECT_EQ(model->a->products(), ProductPrecision::fp8);
    EXPECT_EQ(model->b->products(), ProductPrecision::operands) << "a head";
    clear_forward_casts(plan);
    EXPECT_EQ(model->a->products(), ProductPrecision::operands);
  }
}

TEST(ModelCasts, Fp8NeedsBf16AndAGpu) {
  ShardOptions options;
  options.products = ProductPrecision::fp8;
  EXPECT_EQ(dtype_error_of(options),
            "products are fp8, but param_dtype is the parameters' own; fp8 rounds what is computed "
            "with in bf16");
  options.param_dtype = at::kBFloat16;
  EXPECT_EQ(dtype_error_of(options),
            "precision fp8: this rank computes on cpu, and fp8 needs a GPU; use bf16");
  options.products = ProductPrecision::operands;
  EXPECT_EQ(dtype_error_of(options), "");
}

}  // namespace
}  // namespace fullshard::engine
