// SPDX-License-Identifier: Apache-2.0
// Embedding and head of a large vocabulary as units of their own: what is gathered when, how much
// is held, and that no bit of a gradient changes.
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/comm/recorder.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/sharded_model.h"
#include "tests/models/decoder_cases.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kWidth = 16;
constexpr int64_t kLarge = kSmallestVocabularyUnit / kWidth;  // tokens

nlohmann::json wide_llama(int64_t vocabulary, bool tied) {
  auto config = tiny_llama();
  config["vocab_size"] = vocabulary;
  config["hidden_size"] = kWidth;
  config["tie_word_embeddings"] = tied;
  return config;
}

nlohmann::json wide_gpt2(bool tied) {
  auto config = tiny_gpt2();
  config["vocab_size"] = kLarge;
  config["n_embd"] = kWidth;
  config["tie_word_embeddings"] = tied;
  return config;
}

nlohmann::json wide_bert(const std::string& architecture, bool tied) {
  return {{"architectures", {architecture}},
          {"model_type", "bert"},
          {"vocab_size", kLarge},
          {"hidden_size", kWidth},
          {"intermediate_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"max_position_embeddings", 24},
          {"hidden_dropout_prob", 0.0},
          {"attention_probs_dropout_prob", 0.0},
          {"tie_word_embeddings", tied}};
}

nlohmann::json wide_t5(bool tied) {
  return {{"architectures", {"T5ForConditionalGeneration"}},
          {"model_type", "t5"},
          {"vocab_size", kLarge},
          {"d_model", kWidth},
          {"d_kv", 8},
          {"d_ff", 24},
          {"num_layers", 2},
          {"num_heads", 2},
          {"dropout_rate", 0.0},
          {"feed_forward_proj", "gated-gelu"},
          {"decoder_start_token_id", 0},
          {"tie_word_embeddings", tied}};
}

std::vector<std::string> units_of(const ShardedModel& sharded) {
  std::vector<std::string> paths;
  for (const auto& unit : engine::EngineAccess::of(sharded).plan().units)
    paths.push_back(unit.path);
  return paths;
}

std::vector<std::string> units_of(const nlohmann::json& config,
                                  const WrapPolicy& wrap = WrapPolicy::marked()) {
  std::vector<std::string> paths;
  run_ranks({.ranks = 1}, [&](const World& world) {
    ShardOptions options;
    options.wrap = wrap;
    paths = units_of(shard(make_tiny(config), world, options));
  });
  return paths;
}

TEST(VocabularyUnits, AreThoseOfALargeVocabularyUnderEveryPolicyThatNamesBlocks) {
  const auto large = wide_llama(kLarge, /*tied=*/false);
  const auto own =
      ElementsAre("", "model.embed_tokens", "model.layers.0", "model.layers.1", "lm_head");
  EXPECT_THAT(units_of(large), own);
  EXPECT_THAT(units_of(large, WrapPolicy::classes({"LlamaDecoderLayer"})), own);
  EXPECT_THAT(units_of(large, WrapPolicy::classes({"LlamaDecoderLayer", "Embedding"})), own);
  EXPECT_THAT(units_of(large, WrapPolicy::min_size(kSmallestVocabularyUnit)),
              ElementsAre("", "model.embed_tokens", "lm_head"));
  EXPECT_THAT(units_of(large, WrapPolicy::none()), ElementsAre(""));
}

TEST(VocabularyUnits, SmallModelsHaveNoneUnlessTheirClassIsNamed) {
  const auto small = wide_llama(kLarge - 1, /*tied=*/false);
  const auto blocks = ElementsAre("", "model.layers.0", "model.layers.1");
  EXPECT_THAT(units_of(small), blocks);
  EXPECT_THAT(units_of(small, WrapPolicy::classes({"LlamaDecoderLayer"})), blocks);
  EXPECT_THAT(units_of(small, WrapPolicy::classes({"LlamaDecoderLayer", "Embedding"})),
              ElementsAre("", "model.embed_tokens", "model.layers.0", "model.layers.1"));
}

TEST(VocabularyUnits, ATableThatServesAsTheHeadBelongsToTheRoot) {
  EXPECT_THAT(units_of(wide_llama(kLarge, /*tied=*/true)),
              ElementsAre("", "model.layers.0", "model.layers.1"));
  EXPECT_THAT(units_of(wide_gpt2(/*tied=*/true)),
              ElementsAre("", "transformer.h.0", "transformer.h.1"));
  EXPECT_THAT(units_of(wide_bert("BertForMaskedLM", /*tied=*/true)),
              ElementsAre("", "bert.encoder.layer.0", "bert.encoder.layer.1"));
  EXPECT_THAT(
      units_of(wide_t5(/*tied=*/true)),
      ElementsAre("", "encoder.block.0", "encoder.block.1", "decoder.block.0", "decoder.block.1"));
}

TEST(VocabularyUnits, AreThereInEveryArchitecture) {
  EXPECT_THAT(units_of(wide_gpt2(/*tied=*/false)),
              ElementsAre("", "transformer.wte", "transformer.h.0", "transformer.h.1", "lm_head"));
  EXPECT_THAT(units_of(wide_bert("BertForMaskedLM", /*tied=*/false)),
              ElementsAre("", "bert.embeddings.word_embeddings", "bert.encoder.layer.0",
                          "bert.encoder.layer.1", "cls.predictions.decoder"));
  EXPECT_THAT(units_of(wide_bert("BertModel", /*tied=*/true)),
              ElementsAre("", "embeddings.word_embeddings", "encoder.layer.0", "encoder.layer.1"));
  EXPECT_THAT(units_of(wide_t5(/*tied=*/false)),
              ElementsAre("", "shared", "encoder.block.0", "encoder.block.1", "decoder.block.0",
                          "decoder.block.1", "lm_head"));
}

// Tokens come more than once, from all over the vocabulary.
ModelInputs vocabulary_batch(const World& world, int micro_batch) {
  auto inputs = some_inputs(2, 6 + world.rank() + micro_batch, 11);
  inputs.input_ids = inputs.input_ids * (5'801 + 13 * world.rank() + micro_batch);
  inputs.labels = inputs.input_ids.clone();
  return inputs;
}

// "gather lm_head", "reduce lm_head", … in the order of issue.
std::vector<std::string> calls_since(const ShardedModel& sharded, double start) {
  std::vector<std::string> calls;
  for (const auto& record : sharded.recorder().records()) {
    const bool is_of_unit = record.unit.find("unit") != std::string::npos;
    if (record.issued < start || !is_of_unit) continue;
    auto unit = record.unit.starts_with("unit '")
                    ? record.unit.substr(6, record.unit.find('\'', 6) - 6)
                    : std::string("root");
    const bool gathers = record.operation == Operation::all_gather;
    calls.push_back((gathers ? "gather " : "reduce ") + unit);
  }
  return calls;
}

ShardOptions plain_schedule(Strategy strategy = Strategy::full_shard) {
  ShardOptions options;
  options.sharding.strategy = strategy;
  options.share_host_copy = false;
  options.schedule.backward_prefetch = BackwardPrefetch::none;
  return options;
}

std::vector<std::string> calls_of_a_step(const nlohmann::json& config, const ShardOptions& options,
                                         ModelInputs (*batch)(const World&, int)) {
  std::vector<std::string> calls;
  run_ranks({.ranks = 2}, [&](const World& world) {
    const auto model = make_tiny(config);
    auto sharded = shard(model, world, options);
    const double start = sharded.recorder().now();
    model->forward(batch(world, 0)).loss.backward();
    if (world.rank() == 0) calls = calls_since(sharded, start);
  });
  return calls;
}

// Not in the backward of the blocks: the head is reduced before the first of them is gathered, and
// the embedding is not gathered again.
TEST(VocabularyUnits, AreGatheredOnceAndReducedAtTheirOwnEnds) {
  EXPECT_THAT(calls_of_a_step(wide_llama(kLarge, false), plain_schedule(), vocabulary_batch),
              ElementsAre("gather root", "gather model.embed_tokens", "gather model.layers.0",
                          "gather model.layers.1", "gather lm_head", "reduce lm_head",
                          "gather model.layers.1", "reduce model.layers.1", "gather model.layers.0",
                          "reduce model.layers.0", "reduce model.embed_tokens", "reduce root"));
}

struct Held {
  int64_t all = 0, root = 0, table = 0;  // elements of the units
  int64_t live_after_forward = 0;
  int64_t peak_live = 0;
  int64_t peak_gradients = 0;  // bytes
  int64_t gradient_shards = 0;
};

Held held_by(const nlohmann::json& config, const ShardOptions& options) {
  Held held;
  run_ranks({.ranks = 2}, [&](const World& world) {
    const auto model = make_tiny(config);
    auto sharded = shard(model, world, options);
    const auto loss = model->forward(vocabulary_batch(world, 0)).loss;
    const auto live = sharded.counters().live_numel;
    loss.backward();
    if (world.rank() != 0) return;
    for (const auto& unit : engine::EngineAccess::of(sharded).units()) {
      if (unit->index() == 0) held.root = unit->numel();
      held.table = std::max(held.table, unit->numel());
      held.all += unit->numel();
    }
    held.live_after_forward = live;
    held.peak_live = sharded.counters().peak_live_numel;
    held.peak_gradients = sharded.ledger().peak(tiers::Purpose::gradients);
    held.gradient_shards = sharded.ledger().held(tiers::Purpose::gradients);
  });
  return held;
}

TEST(VocabularyUnits, AreNeverHeldTogether) {
  const auto config = wide_llama(kLarge, /*tied=*/false);
  const auto own = held_by(config, plain_schedule());
  EXPECT_EQ(own.table, kLarge * kWidth);
  EXPECT_EQ(own.peak_live, own.root + own.table);
  EXPECT_EQ(own.live_after_forward, own.root + own.table);  // the head waits for its backward
  // The embedding's gradients collect beside shards only.
  EXPECT_LT(own.peak_gradients, own.gradient_shards + 2 * 4 * own.table);

  auto together = plain_schedule();
  together.wrap = WrapPolicy::predicate(
      [](const WrapCandidate& candidate) { return candidate.class_name == "LlamaDecoderLayer"; });
  const auto root = held_by(config, together);
  EXPECT_GT(root.peak_live, 2 * own.table);
  EXPECT_GE(root.peak_gradients, own.peak_gradients + 4 * own.table / 2);
}

// Also where units are kept from forward to backward: nothing reads an embedding in between.
TEST(VocabularyUnits, AnEmbeddingIsReleasedAfterItsLookUpUnderEveryStrategy) {
  const auto config = wide_llama(kLarge, /*tied=*/false);
  const auto options = plain_schedule(Strategy::shard_grad_op);
  EXPECT_THAT(calls_of_a_step(config, options, vocabulary_batch),
              ElementsAre("gather root", "gather model.embed_tokens", "gather model.layers.0",
                          "gather model.layers.1", "gather lm_head", "reduce lm_head",
                          "reduce model.layers.1", "reduce model.layers.0",
                          "reduce model.embed_tokens", "reduce root"));
  const auto held = held_by(config, options);
  EXPECT_EQ(held.live_after_forward, held.all - held.table);
}

ModelInputs pairs_of(const World& world, int micro_batch) {
  auto inputs = vocabulary_batch(world, micro_batch);
  inputs.labels = (inputs.input_ids.flip(1) + 5) % kLarge;
  return inputs;
}

TEST(VocabularyUnits, AnEmbeddingOfSourceAndTargetIsNotGatheredInBackward) {
  const auto calls = calls_of_a_step(wide_t5(/*tied=*/false), plain_schedule(), pairs_of);
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "gather shared"), 2);
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "gather lm_head"), 1);
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "reduce shared"), 1);
  EXPECT_EQ(calls[0], "gather root");
  EXPECT_EQ(calls[1], "gather shared");
  EXPECT_EQ(calls[4], "gather shared");
}

struct StepCase {
  int ranks = 1;
  Strategy strategy = Strategy::full_shard;
  RecomputePolicy recompute = RecomputePolicy::none();
  int micro_batches = 1;
  bool no_sync = false;
};

using WholeGradients = std::map<std::string, at::Tensor>;  // flat

struct StepResult {
  std::vector<double> losses;  // of rank 0
  WholeGradients gradients;
};

StepResult sharded_step(const nlohmann::json& config, const StepCase& c, const WrapPolicy& wrap) {
  StepResult result;
  std::mutex mutex;
  ShardOptions options;
  options.sharding.strategy = c.strategy;
  options.recompute = c.recompute;
  options.wrap = wrap;
  run_ranks({.ranks = c.ranks}, [&](const World& world) {
    const auto model = make_tiny(config);
    auto sharded = shard(model, world, options);
    for (int micro = 0; micro < c.micro_batches; ++micro) {
      std::optional<NoSync> no_sync;
      if (c.no_sync && micro + 1 < c.micro_batches) no_sync.emplace(sharded.no_sync());
      const auto loss = model->forward(pairs_of(world, micro)).loss;
      loss.backward();
      if (world.rank() == 0) result.losses.push_back(loss.item<double>());
    }
    const std::lock_guard lock(mutex);
    for (const auto& piece : sharded.pieces()) {
      auto& whole = result.gradients[piece.name];
      if (!whole.defined()) whole = at::zeros(piece.shape).flatten();
      whole.slice(0, piece.begin, piece.end).copy_(piece.gradient);
    }
  });
  return result;
}

// A tied table's gradient has two parts, and autograd adds them in the order in which they come:
// those of the look-up one by one, or already added up. `tied` names the table.
void expect_same_layouts(const StepResult& found, const StepResult& expected,
                         const std::string& tied = "") {
  EXPECT_EQ(found.losses, expected.losses);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    const auto& other = found.gradients.at(name);
    EXPECT_TRUE(name == tied ? at::allclose(other, gradient, 1e-5, 1e-7)
                             : at::equal(other, gradient))
        << name;
  }
}

std::string tied_table(const nlohmann::json& config) {
  if (!config["tie_word_embeddings"].get<bool>()) return "";
  return config["model_type"] == "t5" ? "shared.weight" : "model.embed_tokens.weight";
}

// The ranks' gradients added in ascending order, then one multiplication.
StepResult unsharded_step(const nlohmann::json& config, int ranks,
                          const RecomputePolicy& recompute) {
  StepResult result;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto model = make_tiny(config);
    recompute_units(*model, recompute);
    const auto loss = model->forward(pairs_of(World::fake(ranks, rank), 0)).loss;
    loss.backward();
    if (rank == 0) result.losses.push_back(loss.item<double>());
    for (const auto& item : model->named_parameters()) {
      const auto gradient = item.value().grad().flatten();
      auto& sum = result.gradients[item.key()];
      sum = sum.defined() ? sum + gradient : gradient.clone();
    }
  }
  for (auto& [name, sum] : result.gradients) sum.mul_(1.0F / static_cast<float>(ranks));
  return result;
}

std::vector<nlohmann::json> wide_models() {
  return {wide_llama(kLarge, false),           wide_llama(kLarge, true), wide_gpt2(false),
          wide_bert("BertForMaskedLM", false), wide_t5(false),           wide_t5(true)};
}

std::string name_of(const nlohmann::json& config) {
  return fmt::format("{}{}", config["model_type"].get<std::string>(),
                     config["tie_word_embeddings"].get<bool>() ? ", tied" : "");
}

TEST(VocabularyUnits, GiveTheBitsOfTheUnshardedModel) {
  for (const auto& config : wide_models()) {
    for (const int ranks : {1, 2, 3}) {
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, recompute {}", name_of(config), ranks, recompute));
        const auto policy = recompute ? RecomputePolicy::all() : RecomputePolicy::none();
        expect_same_layouts(
            sharded_step(config, {.ranks = ranks, .recompute = policy}, WrapPolicy::marked()),
            unsharded_step(config, ranks, policy), tied_table(config));
      }
    }
  }
}

WrapPolicy only_blocks() {
  return WrapPolicy::predicate([](const WrapCandidate& candidate) {
    return candidate.class_name.ends_with("Layer") || candidate.class_name.ends_with("Block");
  });
}

TEST(VocabularyUnits, GiveTheBitsOfOneRootUnitWhenMicroBatchesAddUp) {
  const auto config = wide_llama(kLarge, /*tied=*/false);
  for (const int ranks : {1, 2, 3}) {
    for (const auto strategy :
         {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard}) {
      for (const bool no_sync : {false, true}) {
        SCOPED_TRACE(fmt::format("{} ranks, strategy {}, no_sync {}", ranks,
                                 static_cast<int>(strategy), no_sync));
        const StepCase c{ranks, strategy, RecomputePolicy::all(), 3, no_sync};
        expect_same_layouts(sharded_step(config, c, WrapPolicy::marked()),
                            sharded_step(config, c, only_blocks()));
      }
    }
  }
}

// A policy may ask for it: then the replay looks up again, and gathers the table for that.
TEST(VocabularyUnits, MayBeRecomputed) {
  const auto all = RecomputePolicy::predicate(
      [](const RecomputeCandidate& candidate) { return !candidate.path.empty(); });
  for (const auto& config : {wide_llama(kLarge, false), wide_t5(false)}) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", name_of(config), ranks));
      expect_same_layouts(
          sharded_step(config, {.ranks = ranks, .recompute = all}, WrapPolicy::marked()),
          unsharded_step(config, ranks, all));
    }
  }
}

}  // namespace
}  // namespace fullshard::testing
