#include "fullshard/checkpoint/fp32_state.h"

#include <gtest/gtest.h>

#include "fullshard/tensor_io/read_tensor.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

TEST(Fp32State, IsWhatDeepSpeedsOwnFunctionGives) {
  const auto state = fp32_state(checkpoint_fixture("zero3"));
  const SafetensorsFile expected(checkpoint_fixture("zero3.safetensors"));
  ASSERT_EQ(state.size(), expected.tensors().size());
  for (const auto& tensor : expected.tensors()) {
    SCOPED_TRACE(tensor.name);
    expect_equal(state.at(tensor.name), read_tensor(expected, tensor.name));
  }
  EXPECT_TRUE(state.at("head.weight").is_alias_of(state.at("emb.weight")));
}

TEST(Fp32State, GoesFromALiveModelIntoAnotherAndBothTrainOn) {
  const CheckpointsFolder folder;
  WholeState saved, loaded;
  std::mutex mutex;
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    run.train(0, 2);
    save_model(folder / "model", run.sharded);
    run.collect(saved, mutex);
    EXPECT_NO_THROW(run.train(2, 3));
  });
  run_ranks({.ranks = 3}, [&](const World& world) {
    RankRun run(world, plain_way(3).options, true);
    load_fp32(run.sharded, folder / "model");
    run.collect(loaded, mutex);
    EXPECT_NO_THROW(run.train(0, 1));
  });
  for (const auto& [name, values] : saved.tensors) {
    if (!name.starts_with("weights")) continue;
    EXPECT_TRUE(at::equal(loaded.tensors.at(name), values)) << name;
  }
}

}  // namespace
}  // namespace fullshard::testing
