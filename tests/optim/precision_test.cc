// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/precision.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <class Call>
std::string precision_error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

std::string error_of(const PrecisionKeys& keys) {
  return precision_error_of([&] { Precision::from(keys); });
}

TEST(Precision, NoIsTheModelsOwn) {
  ShardOptions options;
  options.reduce_dtype = at::kDouble;
  Precision::named("no").apply_to(options);
  EXPECT_FALSE(options.param_dtype || options.master_dtype || options.gradient_dtype ||
               options.buffer_dtype || options.output_dtype);
  EXPECT_EQ(options.reduce_dtype, at::kDouble);
  EXPECT_FALSE(Precision::named("NO").loss_scaling);
}

TEST(Precision, NamesGiveDtypesInAnyCase) {
  struct Case {
    const char* name;
    at::ScalarType dtype;
    bool loss_scaling;
  };
  for (const auto& c : {Case{"fp32", at::kFloat, false}, Case{"FP32", at::kFloat, false},
                        Case{"bf16", at::kBFloat16, false}, Case{"Bf16", at::kBFloat16, false},
                        Case{"fp16", at::kHalf, true}, Case{"FP16", at::kHalf, true}}) {
    const auto precision = Precision::named(c.name);
    ShardOptions options;
    precision.apply_to(options);
    EXPECT_EQ(options.param_dtype, c.dtype) << c.name;
    EXPECT_EQ(options.buffer_dtype, c.dtype) << c.name;
    EXPECT_EQ(options.master_dtype, at::kFloat) << c.name;
    EXPECT_FALSE(options.gradient_dtype || options.reduce_dtype || options.output_dtype) << c.name;
    EXPECT_EQ(precision.optimizer_state, at::kFloat) << c.name;
    EXPECT_EQ(precision.loss_scaling, c.loss_scaling) << c.name;
  }
  EXPECT_EQ(precision_error_of([] { Precision::named("fp4"); }),
            "precision 'fp4': expected no, fp32, bf16, fp16 or fp8");
}

TEST(Precision, Fp8IsBf16WithProductsOfEightBits) {
  ShardOptions options;
  Precision::named("FP8").apply_to(options);
  EXPECT_EQ(options.param_dtype, at::kBFloat16);
  EXPECT_EQ(options.master_dtype, at::kFloat);
  EXPECT_EQ(options.products, ProductPrecision::fp8);
  EXPECT_EQ(Precision::from({.bf16 = true, .fp8 = true}).products, ProductPrecision::fp8);
  EXPECT_EQ(Precision::from({.bf16 = true, .fp8 = true, .fp8_e4m3 = true}).products,
            ProductPrecision::fp8_e4m3);
  EXPECT_EQ(Precision::from({.bf16 = true}).products, ProductPrecision::operands);
}

TEST(Precision, AmpLevels) {
  EXPECT_EQ(Precision::amp("O0").compute, at::kFloat);
  EXPECT_FALSE(Precision::amp("O0").loss_scaling);
  for (const auto* level : {"O1", "O2", "o2"}) {
    const auto precision = Precision::amp(level);
    EXPECT_EQ(precision.compute, at::kHalf);
    EXPECT_EQ(precision.master, at::kFloat);
    EXPECT_FALSE(precision.gradient.has_value());
    EXPECT_TRUE(precision.loss_scaling);
  }
  const auto pure = Precision::amp("O3");
  EXPECT_EQ(pure.compute, at::kHalf);
  EXPECT_EQ(pure.master, at::kHalf);
  EXPECT_EQ(pure.gradient, at::kHalf);
  EXPECT_EQ(pure.optimizer_state, at::kFloat);
  EXPECT_FALSE(pure.loss_scaling);
  EXPECT_EQ(precision_error_of([] { Precision::amp("O4"); }),
            "amp.opt_level 'O4': expected O0, O1, O2 or O3");
}

TEST(PrecisionKeys, NarrowMastersGradientsAndStates) {
  auto precision = Precision::from({.bf16 = true});
  EXPECT_EQ(precision.master, at::kFloat);
  precision = Precision::from({.bf16 = true, .bf16_master_weights_and_grads = true});
  EXPECT_EQ(precision.master, at::kBFloat16);
  EXPECT_EQ(precision.gradient, at::kBFloat16);
  EXPECT_EQ(precision.optimizer_state, at::kFloat);
  precision = Precision::from(
      {.bf16 = true, .bf16_master_weights_and_grads = true, .bf16_optimizer_states = true});
  EXPECT_EQ(precision.optimizer_state, at::kBFloat16);
  precision = Precision::from({.fp16 = true, .fp16_master_weights_and_grads = true});
  EXPECT_EQ(precision.master, at::kHalf);
  EXPECT_EQ(precision.gradient, at::kHalf);
  EXPECT_TRUE(precision.loss_scaling);
  EXPECT_FALSE(Precision::from({}).compute.has_value());
  EXPECT_EQ(Precision::from({.amp = "O1"}).compute, at::kHalf);
}

TEST(PrecisionKeys, CommunicationAndAccumulationHaveTheirOwnDtypes) {
  const auto precision = Precision::from(
      {.bf16 = true, .communication_data_type = "FP32", .grad_accum_dtype = "torch.bfloat16"});
  EXPECT_EQ(precision.reduce, at::kFloat);
  EXPECT_EQ(precision.gradient, at::kBFloat16);
  EXPECT_EQ(error_of({.communication_data_type = "int8"}),
            "communication_data_type 'int8': expected fp32, fp16 or bf16");
  EXPECT_EQ(error_of({.grad_accum_dtype = "fp8"}),
            "data_types.grad_accum_dtype 'fp8': expected fp32, fp16 or bf16");
}

TEST(PrecisionKeys, ThatDisagreeAreErrorsThatNameThem) {
  EXPECT_EQ(error_of({.fp16 = true, .bf16 = true}),
            "fp16.enabled and bf16.enabled are both true: a run has one precision; turn one of "
            "them off");
  EXPECT_EQ(error_of({.fp16 = true, .amp = "O1"}),
            "fp16.enabled and amp.enabled are both true: a run has one precision; turn one of "
            "them off");
  EXPECT_EQ(error_of({.bf16 = true, .amp = "O1"}),
            "bf16.enabled and amp.enabled are both true: a run has one precision; turn one of "
            "them off");
  EXPECT_EQ(error_of({.bf16 = true, .bf16_optimizer_states = true}),
            "bf16.bf16_optimizer_states is true but bf16.bf16_master_weights_and_grads is not; set "
            "bf16.bf16_master_weights_and_grads too, or leave bf16.bf16_optimizer_states out");
  EXPECT_EQ(error_of({.fp16 = true, .bf16_master_weights_and_grads = true}),
            "bf16.bf16_master_weights_and_grads is true but bf16.enabled is not; set bf16.enabled "
            "too, or leave bf16.bf16_master_weights_and_grads out");
  EXPECT_EQ(error_of({.fp16_master_weights_and_grads = true}),
            "fp16.fp16_master_weights_and_grads is true but fp16.enabled is not; set fp16.enabled "
            "too, or leave fp16.fp16_master_weights_and_grads out");
  EXPECT_EQ(
      error_of({.bf16 = true, .bf16_master_weights_and_grads = true, .grad_accum_dtype = "fp32"}),
      "data_types.grad_accum_dtype is 'fp32', but bf16.bf16_master_weights_and_grads keeps "
      "gradients in bf16; leave one of them out");
  EXPECT_EQ(error_of({.amp = "O3", .grad_accum_dtype = "fp32"}),
            "data_types.grad_accum_dtype is 'fp32', but amp.opt_level O3 keeps gradients in fp16; "
            "leave one of them out");
}

TEST(DtypeNamed, KnowsTheSpellingsOfDeepSpeedAndHuggingFace) {
  for (const auto* name : {"fp32", "float32", "float", "torch.float32"}) {
    EXPECT_EQ(dtype_named("key", name), at::kFloat) << name;
  }
  for (const auto* name : {"fp16", "float16", "half", "torch.float16"}) {
    EXPECT_EQ(dtype_named("key", name), at::kHalf) << name;
  }
  for (const auto* name : {"bf16", "bfloat16", "torch.bfloat16", "BF16"}) {
    EXPECT_EQ(dtype_named("key", name), at::kBFloat16) << name;
  }
}

TEST(Tf32, IsSwitchedForTheProcess) {
  const auto& context = at::globalContext();
  set_tf32(true);
  EXPECT_TRUE(context.allowTF32CuBLAS());
  EXPECT_TRUE(context.allowTF32CuDNN());
  EXPECT_EQ(context.float32MatmulPrecision(), at::Float32MatmulPrecision::HIGH);
  set_tf32(false);
  EXPECT_FALSE(context.allowTF32CuBLAS());
  EXPECT_FALSE(context.allowTF32CuDNN());
  EXPECT_EQ(context.float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
}

TEST(PrecisionWarnings, Fp16WithABf16ModelOrT5) {
  const auto fp16 = Precision::named("fp16");
  EXPECT_THAT(
      precision_warnings(fp16, "bfloat16", "llama"),
      ElementsAre("fp16 with a model whose config says bfloat16: it was trained in bf16, and what "
                  "exceeds 65504 in it becomes infinite in fp16, so that the loss turns into NaN "
                  "or the loss scale falls to its minimum; use bf16 or fp32"));
  for (const auto* type : {"t5", "mt5", "T5", "longt5"}) {
    EXPECT_THAT(
        precision_warnings(fp16, "float32", type),
        ElementsAre(fmt::format(
            "fp16 with a model of type {}: T5 was trained in bf16, and the activations of its "
            "feed-forward layers exceed 65504, the largest value of fp16, so that the loss turns "
            "into NaN; use bf16 or fp32",
            type)));
  }
  EXPECT_EQ(precision_warnings(fp16, "torch.bfloat16", "t5").size(), 2);
  EXPECT_EQ(precision_warnings(Precision::amp("O2"), "bfloat16", "llama").size(), 1);
  EXPECT_THAT(precision_warnings(fp16, "float16", "llama"), IsEmpty());
  EXPECT_THAT(precision_warnings(fp16, std::nullopt, "gpt2"), IsEmpty());
  EXPECT_THAT(precision_warnings(Precision::named("bf16"), "bfloat16", "t5"), IsEmpty());
  EXPECT_THAT(precision_warnings(Precision::named("no"), "bfloat16", "t5"), IsEmpty());
}

}  // namespace
}  // namespace fullshard::testing
