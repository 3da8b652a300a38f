// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/recompute_stack.h"

#include <gtest/gtest.h>

namespace fullshard::engine {
namespace {

TEST(RecomputeStack, KnowsTheInnermostCall) {
  RecomputeStack calls;
  EXPECT_TRUE(calls.is_empty());
  EXPECT_FALSE(calls.is_recording());
  calls.push(nn::RecomputePass::record, 7);
  calls.push(nn::RecomputePass::record, 8);
  EXPECT_TRUE(calls.is_recording());
  EXPECT_EQ(calls.id(), 8u);
  calls.pop();
  EXPECT_EQ(calls.id(), 7u);
}

TEST(RecomputeStack, CountsACallRecordedInsideAReplayAsPartOfIt) {
  RecomputeStack calls;
  calls.push(nn::RecomputePass::replay, 1);
  calls.push(nn::RecomputePass::record, 2);
  EXPECT_TRUE(calls.is_recording());
  EXPECT_TRUE(calls.is_replaying());
  calls.pop();
  EXPECT_FALSE(calls.is_recording());
  EXPECT_TRUE(calls.is_replaying());
  calls.pop();
  EXPECT_FALSE(calls.is_replaying());
}

TEST(RecomputeStack, ForgetsEverythingAfterAFailure) {
  RecomputeStack calls;
  calls.push(nn::RecomputePass::replay, 1);
  calls.clear();
  EXPECT_TRUE(calls.is_empty());
  EXPECT_FALSE(calls.is_replaying());
}

}  // namespace
}  // namespace fullshard::engine
