// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a model on a GPU, where masters of bf16 are in halves.
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "fullshard/checkpoint/async_saver.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/device_snapshot.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/stored/blocks/block_writer.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/checkpoint/snapshot_bytes.h"
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

// Each byte crosses once, into pinned memory that the next save finds again, while training goes
// on: only the step that would change the values waits.
TEST_P(CudaCheckpoint, WrittenAsideHasTheBitsOfASynchronousOneAndCopiesEachByteOnce) {
  RankRun run(World::single(kGpu), options(), false);
  run.train(0, kSaved);
  auto device =
      checkpoint::make_device_snapshot(kGpu, engine::EngineAccess::of(run.sharded).ledger());
  const auto& copies = *device->copies;
  auto& windows = *device->windows;
  AsyncSaver saver(std::move(device));
  for (int save = 1; save <= 2; ++save) {
    const auto number = std::to_string(save);
    save_checkpoint(folder_ / ("sync" + number), run.sharded, run.optimizer, {});
    saver.start(folder_ / ("async" + number), run.sharded, run.optimizer, {});
    run.model(small_batch(save, 0).to(kGpu)).backward();
    saver.settle();
    run.optimizer.step();
    run.optimizer.zero_grad();
    saver.finish();
    expect_same_files(folder_ / ("async" + number), folder_ / ("sync" + number), 3);
    EXPECT_EQ(copies.copied_bytes(), save * bytes_to_save(run.sharded));
    EXPECT_EQ(windows.bytes(), 3 * stored::kWriteBytes);
    EXPECT_EQ(run.sharded.ledger().held(tiers::Purpose::workspace, tiers::Tier::host),
              windows.bytes());
  }
  auto window = windows.take();
  EXPECT_TRUE(at::from_blob(window.data(), {stored::kWriteBytes}, at::kByte).is_pinned());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(window.data()) % disk::kDirectAlign, 0u);
  windows.give_back(std::move(window));
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
stored::NameInFile turned_in_file(const std::string& name) {
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
