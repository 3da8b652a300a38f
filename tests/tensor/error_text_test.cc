// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/error_text.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"

namespace fullshard::tensor {
namespace {

std::string text_of_caught(const auto& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error_text(error);
  }
  return "no error";
}

TEST(ErrorText, LeavesLibtorchsFramesOut) {
  EXPECT_EQ(text_of_caught([] {
              at::mm(at::ones({4, 31}), at::ones({32, 128}));
            }),
            "mat1 and mat2 shapes cannot be multiplied (4x31 and 32x128)");
}

TEST(ErrorText, IsWhatAnyOtherErrorSays) {
  EXPECT_EQ(text_of_caught([] { fail("unit '{}' is late", "b"); }), "unit 'b' is late");
  EXPECT_EQ(text_of_caught([] { throw std::out_of_range("index 7"); }), "index 7");
}

}  // namespace
}  // namespace fullshard::tensor
