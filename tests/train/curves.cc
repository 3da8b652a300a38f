// SPDX-License-Identifier: Apache-2.0
#include "tests/train/curves.h"

#include <gtest/gtest.h>

#include "fullshard/base/error.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/run/trainer.h"
#include "tests/train/fixture_models.h"

namespace fullshard::testing {
namespace {

constexpr int64_t kSteps = 20;

uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

UnevenData::UnevenData(int64_t vocabulary, bool has_decoder, int64_t broken)
    : vocabulary_(vocabulary), has_decoder_(has_decoder), broken_(broken) {}

TokenBatch UnevenData::batch(std::span<const int64_t> examples, uint64_t, int64_t) const {
  TokenBatch batch;
  batch.rows = static_cast<int64_t>(examples.size());
  batch.columns = 12;
  batch.decoder_columns = has_decoder_ ? 8 : 0;
  const int64_t label_columns = has_decoder_ ? 8 : 12;
  for (const int64_t example : examples) {
    check(example != broken_, "example {} is broken", example);
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

int64_t UnevenData::token(int64_t example, int64_t column) const {
  const auto key = static_cast<uint64_t>(example * 1000 + column);
  return 3 + static_cast<int64_t>(mixed(key) % static_cast<uint64_t>(vocabulary_ - 3));
}

std::vector<double> losses_on(const World& world, const std::string& folder,
                              const std::string& configuration, int64_t accumulation) {
  const Plan plan = Plan::parse(configuration, "test", {.ranks = world.size()});
  const ModelSource source = find_model(kModels + folder);
  const auto model = make_deferred_model(source);
  ShardedModel sharded(model, world, shard_options_of(plan));
  load_model_weights(source.folder, *model, sharded);
  const UnevenData data(model->vocabulary(), model->is_encoder_decoder());
  Trainer trainer(*model, sharded, plan, data, nullptr,
                  {.steps = kSteps,
                   .global_batch = kGlobalBatch,
                   .micro_batch = kGlobalBatch / accumulation / world.size(),
                   .accumulation = accumulation});
  std::vector<double> losses;
  trainer.run([&](const StepRecord& record) { losses.push_back(record.loss); }, {}, {});
  return losses;
}

void expect_same_losses(const std::vector<double>& expected, const std::vector<double>& found,
                        double tolerance, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t step = 0; step < found.size(); ++step) {
    EXPECT_NEAR(found[step], expected[step], tolerance * expected[step])
        << what << ", step " << step;
  }
}

int64_t steps_before_a_broken_example(const World& world) {
  constexpr int64_t kBatch = 4, kBroken = 3 * kBatch + 1;
  const Plan plan = Plan::parse(fsdp_configuration("FULL_SHARD"), "test", {.ranks = 1});
  const ModelSource source = find_model(kModels + "llama");
  const auto model = make_deferred_model(source);
  ShardedModel sharded(model, world, shard_options_of(plan));
  load_model_weights(source.folder, *model, sharded);
  const UnevenData data(model->vocabulary(), false, kBroken);
  Trainer trainer(
      *model, sharded, plan, data, nullptr,
      {.steps = 10, .global_batch = kBatch, .micro_batch = kBatch, .order = Order::sequential});
  int64_t steps = 0;
  try {
    trainer.run([&](const StepRecord& record) { steps = record.step; }, {}, {});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "example 13 is broken");
  }
  return steps;
}

std::string fsdp_configuration(const std::string& strategy) {
  return "distributed_type: FSDP\nfsdp_config:\n  fsdp_sync_module_states: false\n"
         "  fsdp_cpu_ram_efficient_loading: false\n"
         "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_sharding_strategy: " +
         strategy + "\n";
}

}  // namespace fullshard::testing
