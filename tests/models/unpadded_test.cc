// SPDX-License-Identifier: Apache-2.0
// Batches whose lengths are known against the same batches with a mask alone.
#include "fullshard/models/common/unpadded.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "fullshard/models/bert/bert_model.h"
#include "fullshard/models/t5/t5_model.h"
#include "tests/models/encoder_cases.h"
#include "tests/nn/expect_error.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kPaddedRows = 3, kPaddedColumns = 12;
const std::vector<int64_t> kRealTokens = {12, 5, 1}, kRealLabels = {2, 12, 4};

at::Tensor mask_of(const std::vector<int64_t>& lengths) {
  return at::arange(kPaddedColumns).unsqueeze(0).lt(at::tensor(lengths).unsqueeze(1)).to(at::kLong);
}

at::Tensor some_tokens(int64_t first) {
  return (at::arange(kPaddedRows * kPaddedColumns).view({kPaddedRows, kPaddedColumns}) * 7 + first)
      .remainder(50);
}

ModelInputs padded_inputs() {
  ModelInputs inputs;
  inputs.input_ids = some_tokens(3);
  inputs.attention_mask = mask_of(kRealTokens);
  return inputs;
}

// Of a masked model: some of its real tokens.
ModelInputs masked_inputs() {
  auto inputs = padded_inputs();
  inputs.token_type_ids = some_tokens(1).remainder(2);
  inputs.labels = some_tokens(5);
  inputs.labels.masked_fill_((inputs.attention_mask == 0) | (inputs.labels.remainder(3) == 1),
                             -100);
  return inputs;
}

ModelInputs pair_inputs() {
  auto inputs = padded_inputs();
  inputs.labels = some_tokens(5).masked_fill_(mask_of(kRealLabels) == 0, -100);
  inputs.labels[1][4] = -100;  // in the middle
  return inputs;
}

struct Passed {
  ModelOutputs outputs;
  std::map<std::string, at::Tensor> gradients = {};
};

Passed passed(LanguageModel& model, const ModelInputs& inputs) {
  Passed result{.outputs = model.forward(inputs)};
  const auto& outputs = result.outputs;
  // Without a head: what stands at real tokens.
  const auto loss = outputs.loss.defined()
                        ? outputs.loss
                        : (outputs.hidden * inputs.attention_mask.unsqueeze(2)).pow(2).sum();
  loss.backward();
  for (const auto& parameter : model.named_parameters()) {
    auto& gradient = parameter.value().mutable_grad();
    if (gradient.defined()) result.gradients[parameter.key()] = gradient.clone();
    gradient.reset();
  }
  return result;
}

void expect_the_same(const Passed& found, const Passed& expected) {
  ASSERT_FALSE(expected.gradients.empty());
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    // Some are sums of what cancels, such as those of keys' biases.
    expect_close(name, found.gradients.at(name), gradient, /*least_scale=*/1e-2);
  }
  if (expected.outputs.loss.defined()) {
    expect_close("loss", found.outputs.loss, expected.outputs.loss);
  }
}

models::SharedUnpadded laid_out(const std::vector<int64_t>& lengths, int64_t together = 1) {
  return models::make_unpadded(lengths, kPaddedColumns, at::kCPU, together);
}

// Without filler, and with some: 18 tokens become 20.
class UnpaddedTo : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Multiples, UnpaddedTo, ::testing::Values(1, 10));

TEST_P(UnpaddedTo, BertGivesTheSameLossGradientsAndHiddenStates) {
  for (const std::string folder : {"bert", "bert_untied", "bert_bare"}) {
    SCOPED_TRACE(folder);
    const auto model = load_fixture(models::make_bert, folder);
    auto inputs = masked_inputs();
    if (folder == "bert_bare") inputs.labels.reset();
    const auto expected = passed(*model, inputs);
    inputs.unpadded = laid_out(kRealTokens, GetParam());
    const auto found = passed(*model, inputs);
    expect_the_same(found, expected);
    const auto is_real = inputs.attention_mask.unsqueeze(2);
    expect_close("hidden", found.outputs.hidden * is_real, expected.outputs.hidden * is_real);
    const auto others = found.outputs.hidden.abs().sum(-1).masked_select(is_real.squeeze(2) == 0);
    EXPECT_EQ(others.ne(0).sum().item<int64_t>(), GetParam() == 1 ? 0 : 2)
        << "nothing is computed for padding but the filler";
  }
}

TEST_P(UnpaddedTo, T5GivesTheSameLossAndGradients) {
  for (const std::string folder : {"t5", "t5_v1_1"}) {
    SCOPED_TRACE(folder);
    const auto model = load_fixture(models::make_t5, folder);
    auto inputs = pair_inputs();
    const auto expected = passed(*model, inputs);
    inputs.unpadded = laid_out(kRealTokens, GetParam());
    expect_the_same(passed(*model, inputs), expected);
    inputs.unpadded_labels = laid_out(kRealLabels, GetParam());
    const auto found = passed(*model, inputs);
    expect_the_same(found, expected);
    EXPECT_EQ(found.outputs.hidden.size(1), GetParam() == 1 ? 2 + 12 + 4 : 20)
        << "the head sees no padding but the filler";
    inputs.wants_logits = true;
    EXPECT_EQ(model->forward(inputs).logits.size(1), kPaddedColumns) << "of every place";
  }
}

TEST(Unpadded, MovesTokensThereAndBack) {
  const auto layout = laid_out(kRealTokens);
  ASSERT_NE(layout, nullptr);
  EXPECT_EQ(layout->documents->lengths, kRealTokens);
  EXPECT_EQ(layout->documents->longest, 12);
  const auto tokens = models::without_padding(some_tokens(0), layout);
  EXPECT_EQ(tokens.sizes(), at::IntArrayRef({1, 18}));
  EXPECT_TRUE(tokens[0].narrow(0, 12, 5).equal(some_tokens(0)[1].narrow(0, 0, 5)));
  EXPECT_TRUE(models::with_padding(tokens, layout).equal(some_tokens(0) * mask_of(kRealTokens)));
  EXPECT_TRUE(models::without_padding(some_tokens(0), nullptr).equal(some_tokens(0)));
}

TEST(Unpadded, KeepsSomePaddingAsFillerBehindTheRows) {
  const auto layout = laid_out({9, 5, 1}, 4);
  EXPECT_TRUE(layout->places.narrow(0, 15, 1).equal(at::tensor({9}, at::kLong)));
  EXPECT_THAT(layout->documents->lengths, ElementsAre(9, 5, 1, 1));
  EXPECT_EQ(layout->documents->longest, 12) << "of any batch of that shape";
  // Always some, or the number of documents would be another.
  EXPECT_THAT(laid_out({9, 5, 2}, 4)->documents->lengths, ElementsAre(9, 5, 2, 4));
  EXPECT_TRUE(laid_out({9, 5, 2}, 4)
                  ->places.narrow(0, 16, 4)
                  .equal(at::tensor({9, 10, 11, 17}, at::kLong)));
  EXPECT_EQ(laid_out({2, 1, 1}, 20)->documents->longest, 20)
      << "the filler may be longer than rows";
  EXPECT_EQ(laid_out({9, 5, 1}, 32), nullptr) << "less than an eighth would be saved";
}

TEST(Unpadded, HasACopyWithMemoryOfItsOwn) {
  const auto layout = laid_out(kRealTokens, 10), copy = models::clone_of(layout);
  const auto from = models::tensors_in(layout), to = models::tensors_in(copy);
  ASSERT_EQ(from.size(), 3);
  ASSERT_EQ(to.size(), from.size());
  for (size_t i = 0; i < to.size(); ++i) {
    EXPECT_TRUE(to[i].equal(from[i]));
    EXPECT_NE(to[i].const_data_ptr(), from[i].const_data_ptr());
  }
  EXPECT_EQ(copy->documents->lengths, layout->documents->lengths);
  EXPECT_EQ(models::clone_of(nullptr), nullptr);
  EXPECT_TRUE(models::tensors_in(nullptr).empty());
}

TEST(Unpadded, IsLeftAloneWhereLittleIsPadding) {
  EXPECT_EQ(laid_out({12, 12, 8}), nullptr);
  EXPECT_NE(laid_out({12, 12, 7}), nullptr);
  EXPECT_EQ(laid_out({}), nullptr);
}

TEST(Unpadded, RefusesLengthsThatDoNotFitTheRows) {
  for (const std::vector<int64_t>& wrong :
       {std::vector<int64_t>{12, 5, 0}, {13, 5, 1}, {12, 5, -1}}) {
    EXPECT_THAT(nn::error_of([&] { laid_out(wrong); }), HasSubstr("; expected 1 to 12"));
  }
  EXPECT_THAT(nn::error_of([] { laid_out(kRealTokens, 0); }), HasSubstr("expected 1 or more"));
}

TEST(Unpadded, IsRefusedByModelsOfOtherRows) {
  const auto expected = HasSubstr("of 2 rows of 12 tokens, but there are 3 of 12");
  const auto bert = load_fixture(models::make_bert, "bert");
  const auto t5 = load_fixture(models::make_t5, "t5");
  auto inputs = masked_inputs();
  inputs.unpadded = laid_out({3, 4});
  EXPECT_THAT(nn::error_of([&] { bert->forward(inputs); }), expected);
  EXPECT_THAT(nn::error_of([&] { t5->forward(inputs); }), expected);
  inputs.unpadded.reset();
  inputs.unpadded_labels = laid_out({3, 4});
  EXPECT_THAT(nn::error_of([&] { t5->forward(inputs); }), expected);
}

}  // namespace
}  // namespace fullshard::testing
