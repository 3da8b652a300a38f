// Checkpoints of a model on a GPU, where masters of bf16 are in halves.
#include <gtest/gtest.h>

#include <mutex>
#include <optional>

#include "fullshard/checkpoint/async_saver.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/gpu.h"
#include "tests/master_halves.h"

namespace fullshard::testing {
namespace {

constexpr int kSaved = 2, kLast = 5;  // steps

WholeState state_of(const RankRun& run) {
  WholeState state;
  std::mutex mutex;
  run.collect(state, mutex);
  return state;
}

WholeState go_on(RankRun& run) {
  WholeState losses;
  run.train(kSaved, kLast, &losses);
  auto state = state_of(run);
  state.losses = losses.losses;
  return state;
}

class CudaCheckpoint : public ::testing::TestWithParam<std::optional<at::ScalarType>> {
 protected:
  ShardOptions options() const { return {.param_dtype = GetParam()}; }
  bool has_halves() const { return GetParam() == at::kBFloat16; }

  const CheckpointsFolder folder_;
};

TEST_P(CudaCheckpoint, GoesOnToTheSameBits) {
  RankRun run(World::single(kGpu), options(), false);
  run.train(0, kSaved);
  EXPECT_EQ(are_in_halves(run.sharded), has_halves());
  save_checkpoint(folder_ / "saved", run.sharded, run.optimizer, {.step = kSaved});
  const auto expected = go_on(run);

  RankRun again(World::single(kGpu), options(), true);
  EXPECT_EQ(load_checkpoint(folder_ / "saved", again.sharded, again.optimizer).progress.step,
            kSaved);
  EXPECT_EQ(are_in_halves(again.sharded), has_halves());
  const auto found = go_on(again);
  EXPECT_EQ(found.losses, expected.losses);
  expect_same_state(found, expected);
}

// Steps go on while what was there before them is written.
TEST_P(CudaCheckpoint, WrittenAsideHoldsTheStepItWasAskedFor) {
  RankRun run(World::single(kGpu), options(), false);
  run.train(0, kSaved);
  const auto expected = state_of(run);
  AsyncSaver saver;
  saver.start(folder_ / "aside", run.sharded, run.optimizer, {.step = kSaved});
  saver.settle();
  run.train(kSaved, kLast);
  saver.finish();

  RankRun again(World::single(kGpu), options(), true);
  load_checkpoint(folder_ / "aside", again.sharded, again.optimizer);
  expect_same_state(state_of(again), expected);
}

TEST_P(CudaCheckpoint, IsTheCpusToo) {
  RankRun run(World::single(kGpu), options(), false);
  run.train(0, kSaved);
  save_checkpoint(folder_ / "gpu", run.sharded, run.optimizer, {.step = kSaved});
  RankRun on_cpu(World::single(), options(), true);
  load_checkpoint(folder_ / "gpu", on_cpu.sharded, on_cpu.optimizer);
  expect_same_state(state_of(on_cpu), state_of(run));

  save_checkpoint(folder_ / "cpu", on_cpu.sharded, on_cpu.optimizer, {.step = kSaved});
  RankRun back(World::single(kGpu), options(), true);
  load_checkpoint(folder_ / "cpu", back.sharded, back.optimizer);
  EXPECT_EQ(are_in_halves(back.sharded), has_halves());
  expect_same_state(state_of(back), state_of(run));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaCheckpoint,
                         ::testing::Values(std::nullopt, at::kBFloat16, at::kHalf));

}  // namespace
}  // namespace fullshard::testing
