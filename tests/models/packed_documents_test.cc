// SPDX-License-Identifier: Apache-2.0
// Packed documents against the same documents one by one.
#include "fullshard/ops/attention/packed_documents.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/errors.h"
#include "tests/models/decoder_cases.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<std::vector<int64_t>> kLengths = {{5, 3, 7}, {9, 1, 5}};
constexpr int64_t kColumns = 15;

// Inputs with labels that are next; a part of these is not asked for.
ModelInputs packed_inputs() {
  ModelInputs inputs = some_inputs(2, kColumns);
  inputs.labels = (inputs.input_ids * 3 + 1).remainder(50);
  inputs.labels.masked_fill_(inputs.input_ids.remainder(4) == 1, -100);
  inputs.labels_are_next = true;
  inputs.documents = ops::make_packed_documents(kLengths, at::kCPU);
  return inputs;
}

std::vector<ModelInputs> documents_of(const ModelInputs& packed) {
  std::vector<ModelInputs> documents;
  for (size_t row = 0; row < kLengths.size(); ++row) {
    int64_t begin = 0;
    for (const int64_t length : kLengths[row]) {
      ModelInputs one;
      const auto part = [&](const at::Tensor& rows) {
        return rows.narrow(0, static_cast<int64_t>(row), 1).narrow(1, begin, length);
      };
      one.input_ids = part(packed.input_ids);
      one.labels = part(packed.labels);
      one.labels_are_next = true;
      documents.push_back(one);
      begin += length;
    }
  }
  return documents;
}

std::map<std::string, at::Tensor> gradients_of(LanguageModel& model) {
  std::map<std::string, at::Tensor> gradients;
  for (const auto& parameter : model.named_parameters()) {
    gradients[parameter.key()] = parameter.value().grad().clone();
    parameter.value().mutable_grad().reset();
  }
  return gradients;
}

class PackedDecoders : public ::testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<LanguageModel> make() const {
    auto config = GetParam() == "gpt2" ? tiny_gpt2() : tiny_llama();
    if (GetParam() == "llama_shared_heads") config["num_key_value_heads"] = 1;
    if (GetParam() == "mistral_window") {
      config["model_type"] = "mistral";
      config["architectures"] = {"MistralForCausalLM"};
      config["num_key_value_heads"] = 2;
      config["sliding_window"] = 4;
    }
    return make_tiny(config);
  }
};

TEST_P(PackedDecoders, GiveLossAndGradientsOfDocumentsOneByOne) {
  const auto model = make();
  const auto packed = packed_inputs();
  const auto loss = model->forward(packed).loss;
  loss.backward();
  const auto found = gradients_of(*model);

  const auto num_labels = static_cast<double>((packed.labels != -100).sum().item<int64_t>());
  double expected = 0;
  for (const ModelInputs& document : documents_of(packed)) {
    const auto own = static_cast<double>((document.labels != -100).sum().item<int64_t>());
    if (own == 0) continue;
    const auto weighed = model->forward(document).loss * (own / num_labels);
    weighed.backward();
    expected += weighed.item<double>();
  }
  EXPECT_NEAR(loss.item<double>(), expected, 1e-6);
  for (const auto& [name, gradient] : gradients_of(*model)) {
    EXPECT_TRUE(at::allclose(found.at(name), gradient, 1e-4, 1e-6)) << name;
  }
}

TEST_P(PackedDecoders, SeeNothingAcrossBorders) {
  const auto model = make();
  auto inputs = packed_inputs();
  inputs.labels.reset();
  const auto logits = model->forward(inputs).logits;
  auto others = inputs;
  others.input_ids = inputs.input_ids.clone();
  others.input_ids.narrow(1, 0, 5).fill_(1);  // all of the first row's first document
  const auto changed = model->forward(others).logits;
  EXPECT_FALSE(at::equal(changed[0].narrow(0, 0, 5), logits[0].narrow(0, 0, 5)));
  EXPECT_TRUE(at::equal(changed[0].narrow(0, 5, 10), logits[0].narrow(0, 5, 10)));
}

INSTANTIATE_TEST_SUITE_P(Families, PackedDecoders,
                         ::testing::Values("gpt2", "llama", "llama_shared_heads", "mistral_window"),
                         [](const auto& name) { return name.param; });

TEST(PackedDocuments, CountPositionsInEveryDocument) {
  const auto packed = ops::make_packed_documents({{2, 3}, {4, 1}}, at::kCPU);
  EXPECT_EQ(packed->lengths, (std::vector<int64_t>{2, 3, 4, 1}));
  const std::vector<int64_t> expected = {0, 1, 0, 1, 2, 0, 1, 2, 3, 0};
  EXPECT_TRUE(at::equal(packed->positions, at::tensor(expected).view({2, 5})));
  EXPECT_TRUE(at::equal(packed->starts, at::tensor({0, 2, 5, 9, 10}, at::kInt)));
  EXPECT_EQ(packed->longest, 4);
  EXPECT_FALSE(packed->are_rows());
}

TEST(PackedDocuments, OfWholeRowsAreRowsWithoutAny) {
  const auto model = make_tiny(tiny_llama());
  auto inputs = packed_inputs();
  inputs.documents = nullptr;
  const auto expected = model->forward(inputs).loss;
  inputs.documents = ops::make_packed_documents({{kColumns}, {kColumns}}, at::kCPU);
  EXPECT_TRUE(inputs.documents->are_rows());
  EXPECT_TRUE(at::equal(model->forward(inputs).loss, expected));
}

TEST(PackedDocuments, RefuseWhatDoesNotFit) {
  const auto said = [](const ModelInputs& inputs) {
    return message_of([&] { make_tiny(tiny_gpt2())->forward(inputs); });
  };
  auto inputs = packed_inputs();
  inputs.labels_are_next = false;
  EXPECT_THAT(said(inputs), HasSubstr("labels must be the tokens that come next"));
  inputs = packed_inputs();
  inputs.attention_mask = at::full_like(inputs.input_ids, 1);
  EXPECT_THAT(said(inputs), HasSubstr("together with an attention mask"));
  inputs = packed_inputs();
  inputs.documents = ops::make_packed_documents({{4, 11}}, at::kCPU);
  EXPECT_THAT(said(inputs), HasSubstr("fill rows of shape [1, 15], but the tokens are [2, 15]"));
  EXPECT_THAT(message_of([] {
                ops::make_packed_documents({{4}, {5}}, at::kCPU);
              }),
              HasSubstr("documents of 4 tokens in one row and of 5 in another"));
  EXPECT_THAT(message_of([] {
                ops::make_packed_documents({{4, 0}}, at::kCPU);
              }),
              HasSubstr("a document of 0 tokens"));
}

}  // namespace
}  // namespace fullshard::testing
