// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/storage.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fullshard::tensor {
namespace {

using ::testing::HasSubstr;

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(Storage, ReleasedTensorsThrowTheGivenText) {
  const auto flat = empty_storage_tensor(16, at::kFloat, "unit 'b' is sharded");
  const auto view = flat.view({4, 4});
  EXPECT_TRUE(is_released(flat));
  EXPECT_TRUE(is_released(view));
  EXPECT_THAT(message_of([&] { view.sum(); }), HasSubstr("unit 'b' is sharded"));
  EXPECT_THAT(message_of([&] { view.fill_(1); }), HasSubstr("unit 'b' is sharded"));
  EXPECT_EQ(view.sizes(), (std::vector<int64_t>{4, 4}));
}

TEST(Storage, RefilledViewsSeeTheMemoryAndLoseItAgain) {
  const auto flat = empty_storage_tensor(4, at::kFloat, "away");
  const auto view = flat.narrow(0, 2, 2);
  std::vector<float> memory = {1, 2, 3, 4};
  refill(flat, memory.data());
  EXPECT_FALSE(is_released(view));
  EXPECT_EQ(view.sum().item<float>(), 7);
  view.fill_(9);
  EXPECT_EQ(memory[3], 9);
  release(flat, "away again");
  EXPECT_THAT(message_of([&] { view.sum(); }), HasSubstr("away again"));
}

TEST(Storage, GradientsAreTheSameWhenTheMemoryWasAwayBetweenForwardAndBackward) {
  const auto values = at::randn({5, 3});
  const auto x = at::randn({2, 3});
  auto plain = values.clone().requires_grad_();
  at::linear(x, plain).pow(2).sum().backward();

  auto parameter = at::empty({0}).requires_grad_();
  const auto flat = empty_storage_tensor(15, at::kFloat, "away");
  parameter.set_data(flat.view({5, 3}));
  auto memory = values.clone();
  refill(flat, memory.data_ptr());
  const auto version = parameter._version();
  const auto loss = at::linear(x, parameter).pow(2).sum();
  release(flat, "away");
  auto other = values.clone();
  refill(flat, other.data_ptr());
  EXPECT_EQ(parameter._version(), version);
  loss.backward();
  EXPECT_TRUE(at::equal(parameter.grad(), plain.grad()));
}

TEST(Storage, AThrowingTensorHasAShapeButNoBytes) {
  const auto poison = throwing_tensor({1000, 1000, 1000}, at::kFloat, "poison");
  EXPECT_EQ(poison.numel(), 1'000'000'000);
  EXPECT_EQ(poison.storage().nbytes(), 4u);
  EXPECT_THAT(message_of([&] { poison.narrow(0, 0, 1).sum(); }), HasSubstr("poison"));
}

TEST(Storage, AnEmptyTensorIsNeverReleased) {
  EXPECT_FALSE(is_released(empty_storage_tensor(0, at::kFloat, "away")));
}

}  // namespace
}  // namespace fullshard::tensor
