// SPDX-License-Identifier: Apache-2.0
// libtorch seeds its default generator anew in every process. Here every test begins with the same
// numbers; GTEST_RANDOM_SEED chooses others, and a test that fails says which it had.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdio>

namespace fullshard::testing {
namespace {

class Seeds : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { at::manual_seed(seed()); }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!test.result()->Failed()) return;
    std::fprintf(stderr, "its numbers: GTEST_RANDOM_SEED=%d\n", seed());
  }
  static int seed() { return GTEST_FLAG_GET(random_seed); }
};

[[maybe_unused]] const bool is_listening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new Seeds);
  return true;
}();

}  // namespace
}  // namespace fullshard::testing
