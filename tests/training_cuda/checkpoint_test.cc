// Checkpoints of a model on a GPU, where masters of bf16 are in halves.
#include <gtest/gtest.h>

#include <mutex>
#include <optional>

#include "fullshard/checkpoint/async_saver.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/formats/open_weights.h"
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

// As Hugging Face's folders hold GPT-2: some matrices turned.
NameInFile turned_in_file(const std::string& name) {
  return {name, name == "block1.up.weight", {}};
}

TEST_P(CudaCheckpoint, SavedWeightsAreThoseOfTheDevice) {
  RankRun run(World::single(kGpu), options(), false);
  run.train(0, kSaved);
  save_weights(folder_.path(), run.sharded, {.names = turned_in_file});
  RankRun on_cpu(World::single(), options(), true);
  load_weights(*open_weights(folder_.path()), on_cpu.sharded, {.names = turned_in_file});
  auto expected = state_of(run), found = state_of(on_cpu);
  const auto is_no_weight = [](const auto& item) { return !item.first.starts_with("weights of "); };
  std::erase_if(expected.tensors, is_no_weight);
  std::erase_if(found.tensors, is_no_weight);
  expected.optimizer_steps = found.optimizer_steps = 0;
  EXPECT_FALSE(expected.tensors.empty());
  expect_same_state(found, expected);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaCheckpoint,
                         ::testing::Values(std::nullopt, at::kBFloat16, at::kHalf));

}  // namespace
}  // namespace fullshard::testing
