// SPDX-License-Identifier: Apache-2.0
// Text from models on the GPU: steps as graphs, of plain and of sharded models.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/generation/cached_language_model.h"
#include "fullshard/generation/generate.h"
#include "fullshard/generation/whole_weights.h"
#include "tests/generation/fixture_models.h"
#include "tests/gpu.h"
#include "tests/models/decoder_cases.h"

namespace fullshard::testing {
namespace {

using Tokens = std::vector<std::vector<int64_t>>;

const Tokens kGpuPrompts = {{7, 9, 1, 30, 22}, {4}, {11, 12, 13, 14, 15, 16, 17, 18, 19}};

nlohmann::json small_llama() {
  auto config = tiny_llama();
  config["hidden_size"] = 64;
  config["intermediate_size"] = 96;
  config["num_attention_heads"] = 2;
  config["num_key_value_heads"] = 1;
  config["max_position_embeddings"] = 64;
  return config;
}

nlohmann::json small_gpt2() {
  auto config = tiny_gpt2();
  config["n_embd"] = 64;
  config["n_positions"] = 64;
  return config;
}

std::shared_ptr<LanguageModel> on_gpu(const nlohmann::json& config, at::ScalarType dtype) {
  auto model = make_tiny(config);
  model->to(kGpu, dtype);
  model->eval();
  return model;
}

CachedModelOptions as_graph(bool weights_stay) {
  return {.device = kGpu, .weights_stay = weights_stay};
}

// The logits of prompts and steps, of which some change the number of rows and some their order.
std::vector<at::Tensor> logits_of_steps(CachedLanguageModel& cached) {
  std::vector<at::Tensor> logits = {cached.begin(kGpuPrompts, 20).clone()};
  const auto go_on = [&](const std::vector<int64_t>& tokens) {
    logits.push_back(cached.next(tokens).clone());
  };
  for (int64_t step = 0; step < 5; ++step) go_on({step, 20 + step, 40 - step});
  cached.select_rows({2, 0, 0});
  for (int64_t step = 0; step < 3; ++step) go_on({3, step, 5});
  cached.select_rows({1, 2});
  for (int64_t step = 0; step < 4; ++step) go_on({step, 1});
  logits.push_back(cached.begin({kGpuPrompts[0]}, 9).clone());
  for (int64_t step = 0; step < 9; ++step) go_on({step});
  return logits;
}

TEST(CudaGeneration, OfGraphsGivesTheBitsOfKernelsOneByOne) {
  for (const auto& [config, dtype] : {std::pair(small_llama(), at::kBFloat16),
                                      {small_llama(), at::kFloat},
                                      {small_gpt2(), at::kBFloat16}}) {
    const auto model = on_gpu(config, dtype);
    CachedLanguageModel one_by_one(*model, as_graph(false)), graphs(*model, as_graph(true));
    const auto wanted = logits_of_steps(one_by_one), found = logits_of_steps(graphs);
    EXPECT_FALSE(one_by_one.uses_graph());
    EXPECT_TRUE(graphs.uses_graph());
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], wanted[i])) << i;
  }
}

TEST(CudaGeneration, TakesNoGraphWhereAKernelLooksAtTheHost) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    auto config = small_llama();
    config["num_attention_heads"] = 4;  // 16 wide
    const auto model = on_gpu(config, dtype);
    CachedLanguageModel cached(*model, as_graph(true));
    cached.begin(kGpuPrompts, 8);
    for (int64_t step = 0; step < 4; ++step) cached.next({1, 2, step});
    EXPECT_FALSE(cached.uses_graph());
  }
}

TEST(CudaGeneration, KeepsTheRoomOfItsCache) {
  const auto model = on_gpu(small_llama(), at::kBFloat16);
  CachedLanguageModel cached(*model, as_graph(true));
  cached.begin({{1, 2}}, 3);
  for (int64_t step = 0; step < 3; ++step) cached.next({step});
  EXPECT_TRUE(cached.uses_graph());
  EXPECT_THROW(cached.next({1}), std::exception);
}

GenerateOptions greedy(int64_t min_new_tokens) {
  GenerateOptions options;
  options.max_new_tokens = 12;
  options.min_new_tokens = min_new_tokens;
  options.eos_tokens = {3, 11, 17, 23, 31, 40, 41, 42};
  options.batch = 3;
  return options;
}

// Scores that are looked at on the host, which asking for logprobs makes, choose the same tokens.
TEST(CudaGeneration, ChoosesTheTokensThatTheHostWould) {
  for (const int64_t least : {0, 6}) {
    const auto model = on_gpu(small_llama(), at::kBFloat16);
    CachedLanguageModel cached(*model, as_graph(true));
    auto options = greedy(least);
    const auto found = tokens_of(generate(cached, numbered(kGpuPrompts), options));
    options.wants_logprobs = true;
    EXPECT_EQ(found, tokens_of(generate(cached, numbered(kGpuPrompts), options))) << least;
  }
}

TEST(CudaGeneration, OfAShardedModelGivesThoseOfTheModelItself) {
  const auto plain = on_gpu(small_llama(), at::kBFloat16);
  CachedLanguageModel cached(*plain, as_graph(true));
  const auto wanted = tokens_of(generate(cached, numbered(kGpuPrompts), greedy(12)));
  const auto model = make_tiny(small_llama());
  model->eval();
  for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
  ShardOptions options{.param_dtype = at::kBFloat16, .master_dtype = at::kBFloat16};
  options.watch_non_finite = false;
  options.schedule.repeats_forward = true;
  auto sharded = shard(model, World::single(kGpu), options);
  generation::WholeWeights weights(sharded);
  CachedLanguageModel of_shards(*model, as_graph(true));
  EXPECT_EQ(tokens_of(generate(of_shards, numbered(kGpuPrompts), greedy(12))), wanted);
  EXPECT_TRUE(of_shards.uses_graph());
  weights.close();
}

// Weights that come from host memory for every pass: no graph, the same tokens.
TEST(CudaGeneration, OfWeightsInHostMemoryGivesTheSameTokens) {
  const auto plain = on_gpu(small_llama(), at::kBFloat16);
  CachedLanguageModel cached(*plain, as_graph(true));
  const auto wanted = tokens_of(generate(cached, numbered(kGpuPrompts), greedy(12)));
  for (const size_t num_resident : {size_t{0}, size_t{2}}) {
    const auto model = make_tiny(small_llama());
    model->eval();
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    ShardOptions options{.param_dtype = at::kBFloat16, .master_dtype = at::kBFloat16};
    options.watch_non_finite = false;
    options.schedule.repeats_forward = true;
    options.offload.parameters.tier = tiers::Tier::host;
    auto sharded = shard(model, World::single(kGpu), options);
    std::vector<std::string> resident;
    if (num_resident > 0) resident = {"", "model.layers.0"};
    generation::WholeWeights weights(sharded, resident);
    CachedLanguageModel fetched(*model, as_graph(false));
    EXPECT_EQ(tokens_of(generate(fetched, numbered(kGpuPrompts), greedy(12))), wanted)
        << num_resident;
    weights.close();
  }
}

}  // namespace
}  // namespace fullshard::testing
