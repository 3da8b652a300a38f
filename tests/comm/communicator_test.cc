// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "expect_error.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::comm {
namespace {

at::Tensor floats(int64_t numel) { return at::zeros({numel}); }

TEST(Communicator, RefusesAGatherOfTheWrongSize) {
  const World world = World::fake(4);
  EXPECT_EQ(error_of([&] { world.communicator().all_gather(floats(10), floats(3)); }),
            "all_gather: full has shape [10], expected [12] or [4, 3]: 4 rows of the shard's 3 "
            "elements");
}

TEST(Communicator, RefusesDifferentDtypesInAGather) {
  const World world = World::fake(2);
  EXPECT_EQ(
      error_of([&] { world.communicator().all_gather(floats(4), at::zeros({2}, at::kBFloat16)); }),
      "all_gather: full is Float, shard is BFloat16; a gather moves bits, so the dtypes must "
      "agree");
}

TEST(Communicator, RefusesAnExchangeOfUnequalRows) {
  const auto world = World::single();
  EXPECT_EQ(error_of([&] { world.communicator().all_to_all(at::zeros({4}), at::zeros({5})); }),
            "all_to_all: sent has shape [5], expected [4] or [1, 4]: 1 rows of 4 elements");
  EXPECT_EQ(
      error_of([&] { world.communicator().all_to_all(at::zeros({4}), at::zeros({4}, at::kLong)); }),
      "all_to_all: received is Float, sent is Long; it moves bits, so the dtypes must agree");
}

TEST(Communicator, RefusesRowsThatAreNotContiguous) {
  const World world = World::fake(2);
  EXPECT_EQ(error_of([&] {
              world.communicator().all_gather(at::zeros({3, 2}).t(), floats(3));
            }),
            "all_gather: full of shape [2, 3] has rows with stride 2, expected contiguous rows");
  EXPECT_EQ(error_of([&] {
              world.communicator().all_gather(floats(4), at::zeros({2, 2}).select(1, 0));
            }),
            "all_gather: shard of shape [2] is not contiguous; pass a contiguous tensor");
}

TEST(Communicator, RefusesSlicesThatDoNotDivideTheRanks) {
  const World world = World::fake(4);
  EXPECT_EQ(
      error_of([&] { world.communicator().reduce_scatter(floats(2), floats(6), {.slices = 3}); }),
      "reduce_scatter: slices is 3, expected a divisor of the 4 ranks of group world");
}

TEST(Communicator, RefusesDtypesThatCannotBeReduced) {
  const World world = World::fake(2);
  EXPECT_EQ(error_of([&] { world.communicator().all_reduce(at::zeros({2}, at::kByte)); }),
            "all_reduce: dtype Byte cannot be reduced; use float32, bfloat16, float16, float64 or "
            "int64");
  EXPECT_EQ(
      error_of([&] { world.communicator().reduce_scatter(floats(1), at::zeros({2}, at::kLong)); }),
      "reduce_scatter: full is Long, shard is Float; both must be floating dtypes or the "
      "same");
}

TEST(Communicator, RefusesARootOutsideTheGroup) {
  const World world = World::fake(2);
  EXPECT_EQ(error_of([&] { world.communicator().broadcast(floats(1), 2); }),
            "broadcast: root is 2, expected a rank of group world: 0 to 1");
}

TEST(Communicator, RefusesAnUndefinedTensor) {
  const World world = World::single();
  EXPECT_EQ(error_of([&] { world.communicator().all_reduce(at::Tensor()); }),
            "all_reduce: tensor is an undefined tensor; give it memory first");
}

TEST(Communicator, CountsOneSequenceForAllItsCopies) {
  const World world = World::fake(2);
  const Communicator copy = world.communicator();
  world.communicator().barrier();
  copy.barrier("unit");
  world.communicator().barrier();
  const auto records = world.recorder().records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].sequence, 2u);
  EXPECT_EQ(records[1].unit, "unit");
  EXPECT_EQ(records[2].sequence, 3u);
}

TEST(Communicator, CountsWhatARingWouldMove) {
  const World world = World::fake(4);
  const Communicator& all = world.communicator();
  all.all_gather(floats(400), floats(100)).wait();
  all.reduce_scatter(floats(100), floats(400)).wait();
  all.reduce_scatter(floats(200), floats(400), {.slices = 2}).wait();
  all.all_reduce(floats(400)).wait();
  const Recorder& recorder = world.recorder();
  EXPECT_EQ(recorder.totals(Operation::all_gather).bytes, 1600);
  EXPECT_EQ(recorder.totals(Operation::all_gather).moved, 1200);
  // Two slices: reduced as before, then each half of a slice goes to its other replica.
  EXPECT_EQ(recorder.totals(Operation::reduce_scatter).moved, 1200 + 1200 + 400);
  EXPECT_EQ(recorder.totals(Operation::all_reduce).moved, 2400);
}

TEST(Communicator, IsInFlightUntilWaitedFor) {
  const World world = World::fake(2);
  Work work = world.communicator().all_gather(floats(4), floats(2));
  EXPECT_EQ(world.recorder().in_flight(), 1);
  work.wait();
  work.wait();
  EXPECT_EQ(world.recorder().in_flight(), 0);
}

TEST(Communicator, WritesThroughLeavesThatRequireGradients) {
  const World world = World::single();
  const at::Tensor parameter = at::zeros({3}).requires_grad_();
  world.communicator().all_gather(parameter, at::ones({3})).wait();
  EXPECT_TRUE(at::equal(parameter.detach(), at::ones({3})));
}

TEST(Communicator, SaysWhichBackendsShareNoMemory) {
  const World world = World::single();
  EXPECT_FALSE(world.communicator().shares_memory());
  EXPECT_EQ(error_of([&] { world.communicator().allocate_common(1, at::kFloat); }),
            "allocate_common: ranks of backend self do not share memory; ask shares_memory() "
            "first");
  EXPECT_EQ(error_of([&] { world.communicator().make_counters(1); }),
            "make_counters: ranks of backend self do not share memory; ask shares_memory() first");
}

}  // namespace
}  // namespace fullshard::comm
