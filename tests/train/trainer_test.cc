// Whole runs of ready models: the loss does not depend on how a model is sharded.
#include "fullshard/train/trainer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "fullshard/comm/world.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "tests/train/fixture_models.h"

namespace fullshard {
namespace {

using testing::kModels;

constexpr int64_t kSteps = 20;
constexpr int64_t kGlobalBatch = 12;  // for 1, 2, 3 and 4 ranks

uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Examples of different lengths with some labels left out: ranks and micro-batches hold different
// numbers of labels.
class UnevenData : public Dataset {
 public:
  UnevenData(int64_t vocabulary, bool has_decoder)
      : vocabulary_(vocabulary), has_decoder_(has_decoder) {}

  int64_t size() const override { return 64; }
  int64_t max_token() const override { return vocabulary_ - 1; }
  std::string describe() const override { return "examples of a test"; }

  TokenBatch batch(std::span<const int64_t> examples, uint64_t, int64_t) const override {
    TokenBatch batch;
    batch.rows = static_cast<int64_t>(examples.size());
    batch.columns = 12;
    batch.decoder_columns = has_decoder_ ? 8 : 0;
    const int64_t label_columns = has_decoder_ ? 8 : 12;
    for (const int64_t example : examples) {
      const int64_t length = 5 + static_cast<int64_t>(mixed(static_cast<uint64_t>(example)) % 8);
      for (int64_t column = 0; column < 12; ++column) {
        batch.input_ids.push_back(column < length ? token(example, column) : 0);
        batch.attention_mask.push_back(column < length ? 1 : 0);
      }
      for (int64_t column = 0; column < label_columns; ++column) {
        const bool counts = column < length && token(example, column + 100) % 3 != 0;
        batch.labels.push_back(counts || column == 1 ? token(example, column + 50) : -100);
      }
    }
    return batch;
  }

 private:
  int64_t token(int64_t example, int64_t column) const {
    const auto key = static_cast<uint64_t>(example * 1000 + column);
    return 3 + static_cast<int64_t>(mixed(key) % static_cast<uint64_t>(vocabulary_ - 3));
  }

  int64_t vocabulary_;
  bool has_decoder_;
};

struct Case {
  int ranks;
  std::string configuration;
};

// What rank 0 saw, step by step.
std::vector<double> losses_of(const std::string& folder, const Case& how, int64_t accumulation) {
  std::vector<double> losses;
  run_ranks({.ranks = how.ranks}, [&](const World& world) {
    const Plan plan = Plan::parse(how.configuration, "test", {.ranks = world.size()});
    const ModelSource source = find_model(kModels + folder);
    const auto model = make_deferred_model(source);
    ShardedModel sharded(model, world, shard_options_of(plan));
    load_model_weights(source.folder, *model, sharded);
    const UnevenData data(model->vocabulary(), model->is_encoder_decoder());
    Trainer trainer(*model, sharded, plan, data, nullptr,
                    {.steps = kSteps,
                     .global_batch = kGlobalBatch,
                     .micro_batch = kGlobalBatch / accumulation / how.ranks,
                     .accumulation = accumulation});
    trainer.run([&](const StepRecord& record) { losses.push_back(record.loss); }, {}, {});
  });
  return losses;
}

std::string fsdp(const std::string& strategy) {
  return "distributed_type: FSDP\nfsdp_config:\n  fsdp_sync_module_states: false\n"
         "  fsdp_cpu_ram_efficient_loading: false\n"
         "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_sharding_strategy: " +
         strategy + "\n";
}

std::string zero(int stage) {
  return fmt::format(
      R"({{"train_batch_size": {}, "zero_optimization": {{"stage": {}}}, "gradient_clipping": 1.0}})",
      kGlobalBatch, stage);
}

void expect_same(const std::vector<double>& expected, const std::vector<double>& found,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t step = 0; step < found.size(); ++step) {
    EXPECT_NEAR(found[step], expected[step], 1e-5 * expected[step]) << what << ", step " << step;
  }
}

class Curves : public ::testing::TestWithParam<std::string> {};

TEST_P(Curves, AreTheSameForEveryStrategyAndWorld) {
  const std::vector<double> alone = losses_of(GetParam(), {1, fsdp("NO_SHARD")}, 1);
  EXPECT_NE(alone.back(), alone.front());
  const std::vector<Case> cases = {
      {2, fsdp("FULL_SHARD")},
      {2, fsdp("NO_SHARD")},
      {2, zero(1)},
      {2, zero(2)},
      {2, fsdp("HYBRID_SHARD")},
      {2, fsdp("SHARD_GRAD_OP")},
      {3, fsdp("SHARD_GRAD_OP")},
      {3, fsdp("FULL_SHARD")},
      {3, zero(3)},
      {3, fsdp("NO_SHARD")},
      {3, fsdp("HYBRID_SHARD_ZERO2")},
  };
  for (const Case& how : cases) {
    const std::string what = fmt::format("{} ranks, {}", how.ranks, how.configuration);
    expect_same(alone, losses_of(GetParam(), how, 1), what);
  }
  expect_same(alone, losses_of(GetParam(), {2, fsdp("FULL_SHARD")}, 3), "accumulated");
}

INSTANTIATE_TEST_SUITE_P(Models, Curves, ::testing::Values("gpt2", "llama", "bert", "t5"),
                         [](const auto& which) { return which.param; });

TEST(Trainer, StopsAtTheEndOfAStepWhenAnyRankIsTold) {
  std::mutex mutex;
  std::map<int, int64_t> done;
  run_ranks({.ranks = 2}, [&](const World& world) {
    const Plan plan = Plan::parse(fsdp("FULL_SHARD"), "test", {.ranks = 2});
    const ModelSource source = find_model(kModels + "llama");
    const auto model = make_deferred_model(source);
    ShardedModel sharded(model, world, shard_options_of(plan));
    make_new_weights(*model, sharded, 1);
    const UnevenData data(model->vocabulary(), false);
    Trainer trainer(*model, sharded, plan, data, nullptr,
                    {.steps = 100, .global_batch = 4, .micro_batch = 2});
    int64_t asked = 0;
    const int64_t steps = trainer.run({}, {}, [&] { return ++asked == 3 && world.rank() == 1; });
    EXPECT_TRUE(trainer.was_interrupted());
    const std::lock_guard lock(mutex);
    done[world.rank()] = steps;
  });
  EXPECT_EQ(done, (std::map<int, int64_t>{{0, 3}, {1, 3}}));
}

}  // namespace
}  // namespace fullshard
