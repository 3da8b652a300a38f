// SPDX-License-Identifier: Apache-2.0
// Optimizer states in pinned host memory: the same bits as without, and the device's memory that is
// left.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/base/bytes.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/models/model_folder.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/stepper.h"
#include "tests/files.h"
#include "tests/gpu.h"
#include "tests/offload_options.h"
#include "tests/training/expectations.h"

namespace fullshard::testing {
namespace {

tiers::TierOptions states_on_host(int64_t window_bytes) {
  return {.optimizer = {.tier = tiers::Tier::host},
          .window_bytes = window_bytes,
          .stepping = tiers::Stepping::device};
}

TEST(CudaOffloadTraining, GivesTheSameBitsWithRecomputationAndAccumulation) {
  for (const auto compute : {at::kFloat, at::kBFloat16}) {
    for (const bool recompute : {false, true}) {
      for (const int micro_batches : {1, 3}) {
        const TrainingOptions training{.steps = 6,
                                       .micro_batches = micro_batches,
                                       .recompute = recompute,
                                       .no_sync = recompute};
        ShardOptions options{.param_dtype = compute};
        const auto resident = train_sharded(World::single(kGpu), options, training);
        options.offload = states_on_host(64 * 10);
        expect_same_bits(train_sharded(World::single(kGpu), options, training), resident,
                         "offloaded");
      }
    }
  }
}

// States, parameters and gradients, in pinned memory and on a disk.
TEST(CudaOffloadTraining, GivesTheSameBitsInEveryResidence) {
  const TemporaryFolder folder;
  for (const auto compute : {at::kFloat, at::kBFloat16}) {
    for (const int micro_batches : {1, 3}) {
      const TrainingOptions training{.steps = 5, .micro_batches = micro_batches};
      ShardOptions options{.param_dtype = compute};
      const auto resident = train_sharded(World::single(kGpu), options, training);
      for (const auto& [name, offload] : residences(folder.path())) {
        options.offload = offload;
        options.offload.streams_on_cpu = false;
        expect_same_bits(train_sharded(World::single(kGpu), options, training), resident, name);
      }
    }
  }
}

std::string llama_config() {
  return nlohmann::json{{"architectures", {"LlamaForCausalLM"}},
                        {"model_type", "llama"},
                        {"hidden_size", 1024},
                        {"intermediate_size", 2816},
                        {"num_hidden_layers", 8},
                        {"num_attention_heads", 16},
                        {"num_key_value_heads", 4},
                        {"max_position_embeddings", 1024},
                        {"tie_word_embeddings", false},
                        {"vocab_size", 32000}}
      .dump();
}

struct LlamaRun {
  std::vector<double> losses;
  int64_t peak = 0;
  int64_t state_bytes = 0;  // on the host
  int64_t window_bytes = 0;
};

LlamaRun train_llama(const tiers::TierOptions& offload) {
  at::manual_seed(1);
  const auto model = fullshard::make_model(llama_config(), "the model of a memory test");
  const int64_t before = memory::device_memory(kGpu).allocated_bytes;
  auto sharded =
      shard(model, World::single(kGpu), {.param_dtype = at::kBFloat16, .offload = offload});
  AdamW optimizer(sharded, {.lr = 1e-3});
  Stepper stepper(sharded, optimizer, {.max_grad_norm = 1.0});
  at::manual_seed(2);
  const auto ids = at::randint(32000, {4, 1024}, at::kLong).to(kGpu);
  LlamaRun run;
  for (int step = 0; step < 6; ++step) {
    if (step == 2) memory::reset_device_peak(kGpu);
    ModelInputs inputs;
    inputs.input_ids = ids;
    inputs.labels = ids;
    const auto loss = model->forward(inputs).loss;
    stepper.backward(loss);
    (void)stepper.step_without_norm();
    run.losses.push_back(loss.item<double>());
  }
  run.peak = memory::device_memory(kGpu).peak_bytes - before;
  run.state_bytes = sharded.ledger().held_total(tiers::Tier::host);
  run.window_bytes = offload.optimizer.tier == tiers::Tier::host
                         ? sharded.ledger().held(tiers::Purpose::optimizer)
                         : 0;
  return run;
}

TEST(CudaOffloadTraining, TakesTheMemoryOfStatesFromTheDevice) {
  const auto resident = train_llama({});
  const auto offloaded = train_llama(states_on_host(8 * kMiB));
  // Not bits: the attention's backward adds in no fixed order. The test above has no attention.
  ASSERT_EQ(offloaded.losses.size(), resident.losses.size());
  for (size_t step = 0; step < resident.losses.size(); ++step) {
    EXPECT_NEAR(offloaded.losses[step], resident.losses[step], 0.01) << step;
  }
  EXPECT_EQ(offloaded.window_bytes, 4 * (8 * kMiB / 160 * 160));
  EXPECT_EQ(resident.state_bytes, 0);
  EXPECT_GT(offloaded.state_bytes, 10 * int64_t{150'000'000});
  const auto expected = resident.peak - offloaded.state_bytes + offloaded.window_bytes;
  EXPECT_NEAR(static_cast<double>(offloaded.peak), static_cast<double>(expected),
              0.02 * static_cast<double>(resident.peak));
}

}  // namespace
}  // namespace fullshard::testing
