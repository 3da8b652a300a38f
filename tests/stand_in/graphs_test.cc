// SPDX-License-Identifier: Apache-2.0
// When passes become graphs, and when they must not.
#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "fullshard/memory/device_memory.h"
#include "fullshard/models/model_folder.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/stepper.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/run/micro_batch_pass.h"
#include "tests/files.h"
#include "tests/gpu.h"
#include "tests/offload_options.h"
#include "tests/stand_in/device/device_memory.h"
#include "tests/train/fixture_models.h"

namespace fullshard::testing {
namespace {

struct GraphRun {
  std::vector<double> losses, norms;
  int64_t num_repeated = 0;
  std::string why_not{};
};

struct GraphCase {
  tiers::TierOptions offload = {};
  int micro_batches = 1;
  bool may_repeat = true;
};

GraphRun run_with_graphs(const GraphCase& which) {
  const ModelSource source = find_model(kModels + "llama");
  const auto model = make_deferred_model(source);
  ShardedModel sharded(model, World::single(kGpu),
                       {.param_dtype = at::kBFloat16, .offload = which.offload});
  load_model_weights(source.folder, *model, sharded);
  model->train();
  AdamW optimizer(sharded, {.lr = 1e-3});
  Stepper stepper(sharded, optimizer,
                  {.max_grad_norm = 0.5, .accumulation_steps = which.micro_batches});
  train::MicroBatchPass pass(*model, sharded, stepper, which.may_repeat);
  GraphRun run;
  for (int step = 0; step < 8; ++step) {
    for (int part = 0; part < which.micro_batches; ++part) {
      at::manual_seed(static_cast<uint64_t>(100 * step + part));
      const auto ids = at::randint(3, model->vocabulary(), {2, 8}, at::kLong).to(kGpu);
      const auto loss = pass.run({.input_ids = ids, .labels = ids}, 1.0);
      run.losses.push_back(loss.item<double>());
    }
    run.norms.push_back(stepper.step().grad_norm);
  }
  run.num_repeated = pass.num_repeated();
  run.why_not = pass.why_not();
  return run;
}

class Graphs : public ::testing::Test {
 protected:
  void TearDown() override { stand_in::DeviceMemory::instance().set_room(0); }
};

// An update beside the next forward is no part of that forward's graph.
TEST_F(Graphs, AreNoneWhereUpdatesLieBesideTheNextForward) {
  const TemporaryFolder folder;
  for (const auto& [name, offload] : residences(folder.path())) {
    SCOPED_TRACE(name);
    GraphCase which{.offload = offload};
    which.offload.streams_on_cpu = false;
    const auto run = run_with_graphs(which);
    EXPECT_EQ(run.num_repeated, 0);
    EXPECT_NE(run.why_not, "");
    which.may_repeat = false;
    EXPECT_EQ(run.losses, run_with_graphs(which).losses);
  }
}

// A graph takes all activations a second time.
TEST_F(Graphs, AreNoneWhereActivationsHaveNoRoomTwice) {
  for (const int micro_batches : {1, 7}) {
    const GraphCase plain{.micro_batches = micro_batches, .may_repeat = false};
    memory::reset_device_peak(kGpu);
    const auto expected = run_with_graphs(plain);
    auto& memory = stand_in::DeviceMemory::instance();
    memory.set_room(memory::device_memory(kGpu).peak_bytes + 4096);
    const auto run = run_with_graphs({.micro_batches = micro_batches});
    EXPECT_EQ(run.num_repeated, 0);
    EXPECT_EQ(run.losses, expected.losses);
    memory.set_room(0);
  }
}

// Whatever the reason, the run goes on, with the gradients that there were.
TEST_F(Graphs, ThatCannotBeCapturedLoseNothing) {
  for (const int micro_batches : {1, 7}) {
    const auto expected = run_with_graphs({.micro_batches = micro_batches, .may_repeat = false});
    for (const int64_t bytes : {2'000, 50'000, 120'000}) {
      SCOPED_TRACE(bytes);
      stand_in::DeviceMemory::instance().set_room(0, bytes);
      const auto run = run_with_graphs({.micro_batches = micro_batches});
      EXPECT_EQ(run.num_repeated, 0);
      EXPECT_EQ(run.losses, expected.losses);
      EXPECT_EQ(run.norms, expected.norms);
    }
  }
}

TEST_F(Graphs, RepeatPassesThatAddToGradients) {
  const GraphCase which{.micro_batches = 7};
  const auto repeated = run_with_graphs(which);
  EXPECT_GT(repeated.num_repeated, 20);
  const auto plain = run_with_graphs({.micro_batches = 7, .may_repeat = false});
  EXPECT_EQ(repeated.losses, plain.losses);
  EXPECT_EQ(repeated.norms, plain.norms);
}

}  // namespace
}  // namespace fullshard::testing
