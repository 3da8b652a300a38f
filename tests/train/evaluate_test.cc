// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/evaluate.h"

#include <gtest/gtest.h>

#include "fullshard/comm/world/world.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"

namespace fullshard::train {
namespace {

// Example k has k % 4 + 1 labels.
class SmallData : public Dataset {
 public:
  explicit SmallData(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  int64_t max_token() const override { return 40; }
  std::string describe() const override { return "examples of a test"; }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t, int64_t) const override {
    TokenBatch batch{.rows = static_cast<int64_t>(examples.size()), .columns = 6};
    for (const int64_t example : examples) {
      for (int64_t column = 0; column < 6; ++column) {
        batch.input_ids.push_back(3 + (example * 7 + column * 5) % 37);
        batch.labels.push_back(column < example % 4 + 1 ? 3 + (example + column) % 37 : -100);
      }
    }
    batch.labels_are_next = true;
    return batch;
  }

 private:
  int64_t size_;
};

EvaluateResult evaluate_on(int ranks, int64_t examples, int64_t micro_batch) {
  EvaluateResult result;
  run_ranks({.ranks = ranks}, [&](const World& world) {
    const ModelSource source = find_model(FULLSHARD_SOURCE_DIR "/tests/fixtures/models/llama");
    const auto model = make_deferred_model(source);
    ShardedModel sharded(model, world, ShardOptions{});
    load_model_weights(source.folder, *model, sharded);
    model->train();
    const auto own = evaluate(*model, SmallData(examples), world, {.micro_batch = micro_batch});
    EXPECT_TRUE(model->is_training());
    if (world.rank() == 0) result = own;
  });
  return result;
}

// 10 examples on 3 ranks of 2: the last batch is 4 examples, one rank has none.
TEST(Evaluate, CountsEveryExampleOnceOnAnyNumberOfRanks) {
  const EvaluateResult alone = evaluate_on(1, 10, 10);
  EXPECT_EQ(alone.examples, 10);
  EXPECT_EQ(alone.labels, 1 + 2 + 3 + 4 + 1 + 2 + 3 + 4 + 1 + 2);
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t micro_batch : {1, 2, 4}) {
      const EvaluateResult found = evaluate_on(ranks, 10, micro_batch);
      EXPECT_EQ(found.examples, 10);
      EXPECT_EQ(found.labels, alone.labels);
      EXPECT_NEAR(found.loss, alone.loss, 1e-6) << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace fullshard::train
