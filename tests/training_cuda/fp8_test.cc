// SPDX-License-Identifier: Apache-2.0
// Training in fp8 on a GPU: the same bits on every run, whatever rests where, is computed again or
// was saved in between.
#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/models/model_folder.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/stepper.h"
#include "tests/files.h"
#include "tests/gpu.h"
#include "tests/training/rank_processes.h"

namespace fullshard::testing {
namespace {

constexpr int kFp8Steps = 6;

// Attention's backward adds in a fixed order.
class Fp8Training : public ::testing::Test {
 protected:
  void SetUp() override { at::globalContext().setDeterministicAlgorithms(true, true); }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }
};

std::string fp8_llama() {
  return nlohmann::json{{"architectures", {"LlamaForCausalLM"}},
                        {"model_type", "llama"},
                        {"hidden_size", 256},
                        {"intermediate_size", 512},
                        {"num_hidden_layers", 3},
                        {"num_attention_heads", 4},
                        {"num_key_value_heads", 2},
                        {"max_position_embeddings", 128},
                        {"tie_word_embeddings", false},
                        {"vocab_size", 1000}}
      .dump();
}

ShardOptions fp8_options(ProductPrecision products = ProductPrecision::fp8) {
  return {.param_dtype = at::kBFloat16, .products = products};
}

struct Fp8Run {
  explicit Fp8Run(const ShardOptions& options, int64_t num_micro_batches = 1)
      : micro_batches(num_micro_batches),
        model((at::manual_seed(1), make_model(fp8_llama(), "the model of a test of fp8"))),
        sharded(shard(model, World::single(kGpu), options)),
        optimizer(sharded, {.lr = 1e-3}),
        stepper(sharded, optimizer,
                {.max_grad_norm = 1.0, .accumulation_steps = static_cast<int>(num_micro_batches)}) {
  }

  std::vector<double> train(int first, int last) {
    std::vector<double> losses;
    for (int step = first; step < last; ++step) {
      at::manual_seed(100 + static_cast<uint64_t>(step));
      double sum = 0;
      for (int64_t i = 0; i < micro_batches; ++i) {
        ModelInputs inputs;
        inputs.input_ids = inputs.labels = at::randint(1000, {4, 128}, at::kLong).to(kGpu);
        const auto loss = model->forward(inputs).loss;
        stepper.backward(loss);
        sum += loss.item<double>();
      }
      (void)stepper.step();
      losses.push_back(sum);
    }
    return losses;
  }

  int64_t micro_batches;
  std::shared_ptr<LanguageModel> model;
  ShardedModel sharded;
  AdamW optimizer;
  Stepper stepper;
};

std::vector<double> fp8_losses(const ShardOptions& options, int64_t micro_batches = 1) {
  return Fp8Run(options, micro_batches).train(0, kFp8Steps);
}

TEST_F(Fp8Training, GivesTheSameBitsOnEveryRunAndIsNotBf16) {
  const auto losses = fp8_losses(fp8_options());
  EXPECT_EQ(fp8_losses(fp8_options()), losses);
  const auto wide = fp8_losses(fp8_options(ProductPrecision::operands));
  EXPECT_NE(wide, losses);
  for (size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], wide[step], 0.02 * wide[step]) << step;
  }
}

TEST_F(Fp8Training, IsTheSameUnderEveryStrategyRecomputedAndOffloaded) {
  for (const int64_t micro_batches : {1, 3}) {
    const auto expected = fp8_losses(fp8_options(), micro_batches);
    for (const auto strategy : {Strategy::no_shard, Strategy::shard_grad_op}) {
      auto options = fp8_options();
      options.sharding.strategy = strategy;
      EXPECT_EQ(fp8_losses(options, micro_batches), expected) << static_cast<int>(strategy);
    }
    auto recomputed = fp8_options();
    recomputed.recompute = RecomputePolicy::all();
    EXPECT_EQ(fp8_losses(recomputed, micro_batches), expected) << "recomputed";
    auto offloaded = fp8_options();
    offloaded.offload = {.optimizer = {.tier = tiers::Tier::host},
                         .window_bytes = 1 << 20,
                         .stepping = tiers::Stepping::device};
    EXPECT_EQ(fp8_losses(offloaded, micro_batches), expected) << "offloaded";
  }
}

// Two processes share the GPU; each rank reads batches of its own.
TEST(Fp8Ranks, GiveTheSameBitsInEveryStrategy) {
  const auto digest_of = [](const std::string& strategy, const std::string& precision) {
    const auto results = run_rank_processes(
        2,
        {"--device", "cuda:0", "--strategy", strategy, "--precision", precision, "--width", "64"},
        120);
    for (const auto& result : results) EXPECT_EQ(result.exit_status, 0) << result.errors;
    return results[0].output;
  };
  const auto expected = digest_of("FULL_SHARD", "fp8");
  EXPECT_EQ(expected.substr(0, 7), "digest ");
  EXPECT_NE(digest_of("FULL_SHARD", "bf16"), expected);
  for (const std::string strategy : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"}) {
    EXPECT_EQ(digest_of(strategy, "fp8"), expected) << strategy;
  }
}

TEST_F(Fp8Training, GoesOnFromACheckpointToTheBit) {
  const TemporaryFolder folder;
  const auto expected = fp8_losses(fp8_options());
  constexpr int kSavedAt = 3;
  {
    Fp8Run first(fp8_options());
    (void)first.train(0, kSavedAt);
    save_checkpoint(folder.path() + "/saved", first.sharded, first.optimizer, {});
  }
  Fp8Run second(fp8_options());
  (void)load_checkpoint(folder.path() + "/saved", second.sharded, second.optimizer);
  EXPECT_EQ(second.train(kSavedAt, kFp8Steps),
            std::vector<double>(expected.begin() + kSavedAt, expected.end()));
}

}  // namespace
}  // namespace fullshard::testing
