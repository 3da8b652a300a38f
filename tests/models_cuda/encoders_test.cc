// SPDX-License-Identifier: Apache-2.0
// BERT and T5 on the GPU: against transformers' numbers, and against the CPU.
#include <ATen/Context.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fullshard/models/common/unpadded.h"
#include "fullshard/models/model_folder.h"
#include "tests/models/decoder_cases.h"
#include "tests/models/encoder_cases.h"
#include "tests/models_cuda/same_step.h"

namespace fullshard::testing {
namespace {

// A relu that is open here and closed there is a whole term of these small sums.
constexpr double kBf16Tolerance = 0.4;

class DeviceEncoders : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(at::globalContext().hasCUDA()) << "no GPU is visible; this program needs one";
  }

  ModelInputs inputs() const {
    return inputs_of(read_tensor_file(fixture_path(GetParam() + "/reference.safetensors")));
  }
};

// Padding is part of the fixtures' inputs.
TEST_P(DeviceEncoders, TakeTheStepOfTheCpu) {
  expect_same_step(GetParam(), inputs(), at::kFloat, 1e-4);
  expect_same_step(GetParam(), inputs(), at::kBFloat16, kBf16Tolerance);
}

TEST_P(DeviceEncoders, TakeTheStepOfTheCpuWithoutPadding) {
  auto whole = inputs();
  whole.attention_mask = at::Tensor();
  expect_same_step(GetParam(), whole, at::kFloat, 1e-4);
  expect_same_step(GetParam(), whole, at::kBFloat16, kBf16Tolerance);
}

// Rows are known to end early: nothing is computed behind their ends.
TEST_P(DeviceEncoders, TakeTheStepOfTheCpuForRowsOfKnownLengths) {
  auto known = inputs();
  const int64_t rows = known.input_ids.size(0), columns = known.input_ids.size(1);
  known.attention_mask = at::zeros({rows, columns}, at::kLong);
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < rows; ++row) {
    lengths.push_back(columns - 1 - (row + 1) * (columns - 2) / rows);
    known.attention_mask[row].narrow(0, 0, lengths.back()).fill_(1);
  }
  known.unpadded = models::make_unpadded(lengths, columns, at::kCPU);
  ASSERT_NE(known.unpadded, nullptr);
  if (GetParam() == "bert") {
    known.labels.masked_fill_(known.attention_mask == 0, -100);
    known.labels.select(1, 0).fill_(3);  // some are left
  }
  expect_same_step(GetParam(), known, at::kFloat, 1e-4);
  expect_same_step(GetParam(), known, at::kBFloat16, kBf16Tolerance);
}

// Lengths that the kernels' packs do not divide.
TEST_P(DeviceEncoders, TakeTheStepOfTheCpuAtOddLengths) {
  auto odd = inputs();
  const bool pairs = odd.labels.sizes() == odd.input_ids.sizes();
  odd.input_ids = odd.input_ids.narrow(1, 0, 5).contiguous();
  odd.attention_mask = odd.attention_mask.narrow(1, 0, 5).contiguous();
  if (odd.token_type_ids.defined()) {
    odd.token_type_ids = odd.token_type_ids.narrow(1, 0, 5).contiguous();
  }
  odd.labels = odd.labels.narrow(1, 0, pairs ? 5 : 3).contiguous();
  expect_same_step(GetParam(), odd, at::kFloat, 1e-4);
  expect_same_step(GetParam(), odd, at::kBFloat16, kBf16Tolerance);
}

TEST_P(DeviceEncoders, GiveTheLossOfTransformers) {
  const auto reference = read_tensor_file(fixture_path(GetParam() + "/reference.safetensors"));
  const auto model = load_decoder(GetParam());
  model->to(at::Device(at::kCUDA));
  const double expected = reference.at("loss").item<double>();
  EXPECT_NEAR(model->forward(moved(inputs(), at::kCUDA)).loss.item<double>(), expected,
              1e-5 * expected);
}

INSTANTIATE_TEST_SUITE_P(Folders, DeviceEncoders, ::testing::Values("bert", "t5", "t5_v1_1"),
                         [](const auto& folder) { return folder.param; });

}  // namespace
}  // namespace fullshard::testing
