// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/watched_alias.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace fullshard::tensor {
namespace {

TEST(WatchedAlias, CountsWritesByEveryWayOfTorchsOptimizers) {
  const at::NoGradGuard no_grad;
  const auto memory = at::zeros({6});
  const auto alias = watched_alias(memory.narrow(0, 2, 3));
  EXPECT_TRUE(alias.is_leaf());
  EXPECT_EQ(alias.sizes(), at::IntArrayRef({3}));
  const std::vector<std::function<void()>> writes = {[&] { alias.add_(1); },
                                                     [&] { alias.data().add_(1); },
                                                     [&] { alias.detach().add_(1); },
                                                     [&] {
                                                       alias.view({3, 1}).add_(1);
                                                     },
                                                     [&] { alias.data().narrow(0, 0, 3).add_(1); },
                                                     [&] { alias.copy_(alias + 1); },
                                                     [&] {
                                                       const c10::InferenceMode inference;
                                                       alias.add_(1);
                                                     }};
  auto version = alias._version();
  double sum = 0;
  for (const auto& write : writes) {
    write();
    EXPECT_GT(alias._version(), version);
    version = alias._version();
    EXPECT_EQ(memory.sum().item<double>(), sum += 3);
  }
}

TEST(WatchedAlias, CountsNoReadsAndNoWritesPastIt) {
  const at::NoGradGuard no_grad;
  const auto memory = at::ones({4});
  const auto alias = watched_alias(memory);
  const auto version = alias._version();
  memory.mul_(2);
  EXPECT_TRUE(at::equal(alias, at::ones({4}) * 2));
  (void)alias.data().add(1);
  (void)alias.detach().clone();
  EXPECT_EQ(alias._version(), version);
}

TEST(WatchedAlias, CountsWhenMadeInInferenceMode) {
  const auto memory = at::ones({4});
  at::Tensor alias;
  {
    const c10::InferenceMode inference;
    alias = watched_alias(memory);
  }
  const auto version = alias._version();
  alias.add_(1);
  EXPECT_GT(alias._version(), version);
}

}  // namespace
}  // namespace fullshard::tensor
