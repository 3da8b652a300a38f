// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/alike_turns.h"

#include <gtest/gtest.h>

#include <memory>

#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::tensor {
namespace {

struct Unconcerned : OperatorWatch {
  void ran(const OperatorCall&, int64_t) override {}
  void marked(int64_t, int64_t) override {}
  void held(int64_t, int64_t) override {}
  void held_host(int64_t) override {}
  void moved_on_disk(int64_t, int64_t, bool) override {}
  void waited_for_disk(int64_t) override {}
};

TEST(AlikeTurns, AreLeftOutOfPlansOfMemoryAlone) {
  EXPECT_FALSE(may_leave_out(5, 10)) << "it computes";
  const PretenceScope pretence;
  for (const int64_t kept : {0, 1, 9}) EXPECT_FALSE(may_leave_out(kept, 10)) << kept;
  for (const int64_t other : {2, 5, 8}) EXPECT_TRUE(may_leave_out(other, 10)) << other;
  const OperatorWatchScope watched(std::make_shared<Unconcerned>());
  EXPECT_FALSE(may_leave_out(5, 10)) << "what each of them would compute is counted";
}

}  // namespace
}  // namespace fullshard::tensor
