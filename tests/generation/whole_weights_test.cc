// SPDX-License-Identifier: Apache-2.0
// Generation from sharded weights, on ranks that are threads.
#include "fullshard/generation/whole_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "fullshard/comm/world/world.h"
#include "fullshard/generation/cached_language_model.h"
#include "fullshard/generation/generate.h"
#include "tests/generation/fixture_models.h"

namespace fullshard::testing {
namespace {

std::vector<GeneratePrompt> prompts_of_rank(int rank, int num_ranks) {
  std::vector<GeneratePrompt> prompts;
  for (int64_t number = 0; number < 5; ++number) {
    if (number % num_ranks == rank) prompts.push_back({{7 + number, 20, 9}, number});
  }
  return prompts;
}

GenerateOptions sampled() {
  GenerateOptions options;
  options.do_sample = true;
  options.max_new_tokens = 12;
  return options;
}

std::vector<std::vector<int64_t>> generated_on(int num_ranks, const std::string& folder) {
  std::vector<std::vector<int64_t>> all(5);
  std::mutex mutex;
  run_ranks({.ranks = num_ranks}, [&](const World& world) {
    const auto model = load_generator(folder);
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    auto sharded = shard(model, world, {.watch_non_finite = false});
    generation::WholeWeights weights(sharded);
    CachedLanguageModel cached(*model);
    const auto results = generate(cached, prompts_of_rank(world.rank(), world.size()), sampled());
    weights.close();
    const std::lock_guard lock(mutex);
    for (const auto& result : results) all[static_cast<size_t>(result.prompt)] = result.tokens;
  });
  return all;
}

class ShardedGeneration : public ::testing::TestWithParam<std::string> {};

// With three ranks they have two, two and one prompts; with six, one has none.
TEST_P(ShardedGeneration, GivesTheSameTokensOnAnyNumberOfRanks) {
  const auto model = load_generator(GetParam());
  CachedLanguageModel cached(*model);
  const auto expected = tokens_of(generate(cached, prompts_of_rank(0, 1), sampled()));
  for (const int num_ranks : {1, 2, 3, 6}) EXPECT_EQ(generated_on(num_ranks, GetParam()), expected);
}

INSTANTIATE_TEST_SUITE_P(Folders, ShardedGeneration,
                         ::testing::Values("gpt2", "llama", "llama_tied", "qwen2", "t5"),
                         [](const auto& folder) { return folder.param; });

TEST(WholeWeights, AreGatheredOnceAndHaveNoGradients) {
  run_ranks({.ranks = 2}, [](const World& world) {
    const auto model = load_generator("llama");
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    auto sharded = shard(model, world, {.watch_non_finite = false});
    const auto before = sharded.counters().unshards;
    generation::WholeWeights weights(sharded);
    const auto gathered = sharded.counters().unshards;
    EXPECT_GT(gathered, before);
    CachedLanguageModel cached(*model);
    // Ranks make different numbers of steps.
    GenerateOptions options;
    options.max_new_tokens = world.rank() == 0 ? 20 : 3;
    generate(cached, {{{5, 6}, 0}}, options);
    EXPECT_EQ(sharded.counters().unshards, gathered);
    weights.close();
    for (const auto purpose : {tiers::Purpose::gradients, tiers::Purpose::optimizer}) {
      EXPECT_EQ(sharded.ledger().peak(purpose), 0);
    }
    // Hooks are back: a forward gathers again.
    const at::NoGradGuard no_grad;
    model->forward(some_inputs(1, 4));
    EXPECT_GT(sharded.counters().unshards, gathered);
  });
}

}  // namespace
}  // namespace fullshard::testing
