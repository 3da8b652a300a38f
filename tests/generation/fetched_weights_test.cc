// SPDX-License-Identifier: Apache-2.0
// Generation from weights that are fetched for every pass, on ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/generation/cached_language_model.h"
#include "fullshard/generation/generate.h"
#include "fullshard/generation/pass_vote.h"
#include "fullshard/generation/whole_weights.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/generation/fixture_models.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

using Tokens = std::vector<std::vector<int64_t>>;

constexpr int64_t kNumPrompts = 5;

GeneratePrompt prompt_number(int64_t number) {
  GeneratePrompt prompt{{7 + number, 20}, number};
  for (int64_t i = 0; i < number; ++i) prompt.tokens.push_back(9 + i);
  return prompt;
}

// Answers end after different numbers of tokens: two of the vocabulary's end them.
GenerateOptions drawn_of_different_lengths() {
  GenerateOptions options;
  options.do_sample = true;
  options.max_new_tokens = 9;
  options.eos_tokens = {3, 11, 17, 23, 31};
  options.batch = 2;
  return options;
}

Tokens tokens_of_one_process(const std::string& folder) {
  const auto model = load_generator(folder);
  CachedLanguageModel cached(*model, {.prefill_tokens = 3});
  std::vector<GeneratePrompt> prompts;
  for (int64_t number = 0; number < kNumPrompts; ++number) prompts.push_back(prompt_number(number));
  return tokens_of(generate(cached, prompts, drawn_of_different_lengths()));
}

struct FetchedRun {
  int num_ranks = 1;
  ShardOptions options = {};
  size_t num_resident = 0;  // of the units, the root first
  bool reads_in_place = false;
};

std::shared_ptr<LanguageModel> deferred_generator(const std::string& folder) {
  auto model = make_deferred_model(find_model(fixture_path(folder)), /*is_trained=*/false);
  model->eval();
  return model;
}

// Values that rest in memory: those that were linked are not among them.
int64_t num_written(const ShardedModel& model) {
  int64_t count = 0;
  for (const auto& unit : engine::EngineAccess::of(model).units()) {
    for (const auto& group : unit->groups()) {
      for (const auto& piece : group->pieces()) {
        count += group->master(piece).count_nonzero().item<int64_t>();
      }
    }
  }
  return count;
}

std::vector<std::string> first_units(const ShardedModel& model, size_t count) {
  std::vector<std::string> paths;
  for (const auto& unit : engine::EngineAccess::of(model).units()) {
    if (paths.size() < count) paths.push_back(unit->path());
  }
  return paths;
}

// Every rank takes every num_ranks-th prompt.
Tokens generated_by(const std::string& folder, const FetchedRun& run) {
  Tokens all(kNumPrompts);
  std::mutex mutex;
  run_ranks({.ranks = run.num_ranks}, [&](const World& world) {
    const auto model = run.reads_in_place ? deferred_generator(folder) : load_generator(folder);
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    ShardOptions options = run.options;
    options.watch_non_finite = false;
    options.schedule.repeats_forward = true;
    auto sharded = shard(model, world, options);
    if (run.reads_in_place) {
      load_model_weights(fixture_path(folder), *model, sharded);
      // GPT-2's matrices lie transposed in its files.
      const bool is_transposed = folder.find("gpt2") != std::string::npos;
      EXPECT_EQ(num_written(sharded) > 0, is_transposed);
    }
    generation::WholeWeights resident(sharded, first_units(sharded, run.num_resident));
    const generation::PassVote vote(world.communicator());
    CachedLanguageModel cached(*model, {.prefill_tokens = 3, .vote = &vote});
    std::vector<GeneratePrompt> own;
    for (int64_t number = world.rank(); number < kNumPrompts; number += world.size()) {
      own.push_back(prompt_number(number));
    }
    const auto results = generate(cached, own, drawn_of_different_lengths());
    cached.serve_others();
    resident.close();
    for (const auto purpose : {tiers::Purpose::gradients, tiers::Purpose::optimizer}) {
      EXPECT_EQ(sharded.ledger().peak(purpose), 0);
    }
    const std::lock_guard lock(mutex);
    for (const auto& result : results) all[static_cast<size_t>(result.prompt)] = result.tokens;
  });
  return all;
}

// The block of docs/generation.md, with a tokenizer of bytes.
TEST(Generate, TakesAModelFolderAndWhatATokenizerGives) {
  for (const int ranks : {1, 2}) {
    run_ranks({.ranks = ranks}, [&](const World& world) {
      const auto source = find_model(fixture_path("llama"));
      const auto model = make_deferred_model(source);
      auto sharded = shard(model, world);
      load_model_weights(source.folder, *model, sharded);
      const auto tokenizer = load_tokenizer("bytes");
      model->eval();
      CachedLanguageModel cached(*model);
      GenerateOptions options;
      options.max_new_tokens = 5;
      const auto tokens = tokenizer->encode("\x07\x09\x0b", /*special=*/false);
      std::string said;
      const auto results =
          generate(cached, {{.tokens = tokens}}, options, tokenizer.get(),
                   {.on_token = [&](const TokenEvent& event) { said += event.text; }});
      const auto plain = load_generator("llama");
      CachedLanguageModel alone(*plain);
      EXPECT_EQ(results[0].tokens, generate(alone, {{.tokens = {7, 9, 11}}}, options)[0].tokens);
      EXPECT_EQ(said, results[0].text);
    });
  }
}

class FetchedWeights : public ::testing::TestWithParam<std::string> {};

// With three ranks they have two, two and one prompts; with six, one has none at all.
TEST_P(FetchedWeights, GiveTheSameTokensOnAnyNumberOfRanks) {
  const auto expected = tokens_of_one_process(GetParam());
  for (const int num_ranks : {1, 2, 3, 4, 6}) {
    EXPECT_EQ(generated_by(GetParam(), {.num_ranks = num_ranks}), expected) << num_ranks;
  }
  EXPECT_EQ(generated_by(GetParam(), {.num_ranks = 3, .num_resident = 2}), expected);
}

// What the model's files hold as it is computed with is not copied: what rests in the folder is a
// hole.
TEST_P(FetchedWeights, AreReadWhereTheirFilesAre) {
  const TemporaryFolder folder;
  const auto expected = tokens_of_one_process(GetParam());
  for (const int num_ranks : {1, 2}) {
    FetchedRun disk{.num_ranks = num_ranks, .reads_in_place = true};
    disk.options.offload.parameters.tier = tiers::Tier::disk;
    disk.options.offload.parameters.folder = folder.path();
    disk.options.offload.parameters.reads_in_place = true;
    disk.options.offload.max_in_cpu = 0;
    EXPECT_EQ(generated_by(GetParam(), disk), expected) << num_ranks;
  }
}

TEST_P(FetchedWeights, GiveTheSameTokensFromHostMemoryAndFromADisk) {
  const TemporaryFolder folder;
  const auto expected = tokens_of_one_process(GetParam());
  for (const int num_ranks : {1, 2}) {
    FetchedRun disk{.num_ranks = num_ranks};
    disk.options.offload.parameters.tier = tiers::Tier::disk;
    disk.options.offload.parameters.folder = folder.path();
    disk.options.offload.max_in_cpu = 0;
    EXPECT_EQ(generated_by(GetParam(), disk), expected) << num_ranks;
    FetchedRun host{.num_ranks = num_ranks};
    host.options.offload.parameters.tier = tiers::Tier::host;
    host.options.offload.streams_on_cpu = true;
    EXPECT_EQ(generated_by(GetParam(), host), expected) << num_ranks;
    host.num_resident = 2;
    EXPECT_EQ(generated_by(GetParam(), host), expected) << num_ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, FetchedWeights,
                         ::testing::Values("gpt2", "llama", "llama_tied", "mistral", "t5",
                                           "t5_v1_1"),
                         [](const auto& folder) { return folder.param; });

TEST(FetchedWeightsOfStrategies, GiveTheSameTokens) {
  const auto expected = tokens_of_one_process("llama");
  for (const auto strategy : {Strategy::full_shard, Strategy::no_shard, Strategy::hybrid_shard}) {
    FetchedRun run{.num_ranks = 4};
    run.options.sharding.strategy = strategy;
    if (strategy == Strategy::hybrid_shard) run.options.sharding.sharding_factor = 2;
    EXPECT_EQ(generated_by("llama", run), expected) << name_of(strategy);
  }
}

TEST(FetchedWeightsOfAModel, AreAskedForAheadOfTheirUse) {
  run_ranks({.ranks = 1}, [](const World& world) {
    const TemporaryFolder folder;
    const auto model = load_generator("llama");
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    ShardOptions options{.watch_non_finite = false};
    options.schedule.repeats_forward = true;
    options.offload.parameters = {.tier = tiers::Tier::disk, .folder = folder.path()};
    options.offload.max_in_cpu = 0;
    auto sharded = shard(model, world, options);
    CachedLanguageModel cached(*model);
    cached.begin({{5, 6}}, 8);  // teaches the order
    cached.next({7});
    const auto before = sharded.counters();
    cached.next({8});
    const auto& after = sharded.counters();
    // All but the root, which is there while the others compute.
    EXPECT_EQ(after.prefetches - before.prefetches + 1, after.unshards - before.unshards);
  });
}

TEST(RanksThatAreDone, ServeTheOthersAndCountNothing) {
  run_ranks({.ranks = 2}, [](const World& world) {
    const auto model = load_generator("llama");
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    auto sharded = shard(model, world, {.watch_non_finite = false});
    const generation::PassVote vote(world.communicator());
    CachedLanguageModel cached(*model, {.vote = &vote});
    GenerateOptions options;
    options.max_new_tokens = 7;
    // One pass reads the prompt, six more follow.
    if (world.rank() == 0) generate(cached, {{{5, 6}, 0}}, options);
    cached.serve_others();
    EXPECT_EQ(cached.num_served(), world.rank() == 0 ? 0 : 7);
  });
}

// A rank that ends without a word is named by those that would wait for it.
TEST(RanksThatAreGone, AreNamedByTheVote) {
  std::string message;
  try {
    run_ranks({.ranks = 2}, [&](const World& world) {
      const generation::PassVote vote(world.communicator());
      vote.agree(generation::PassKind::decode);
      if (world.rank() == 1) throw Error("this rank gives up");
      message = message_of([&] { vote.agree(generation::PassKind::decode); });
    });
  } catch (const std::exception&) {
  }
  EXPECT_THAT(message, ::testing::HasSubstr("rank 1"));
  EXPECT_THAT(message, ::testing::HasSubstr("the next pass of generation"));
}

}  // namespace
}  // namespace fullshard::testing
