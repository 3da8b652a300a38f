// SPDX-License-Identifier: Apache-2.0
// Tensors that are made in an inference mode can be written in one only, and some of what a forward
// needs is written by other threads than the caller's.
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "fullshard/engine/engine.h"
#include "fullshard/engine/sharded_model.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

TEST(InAnInferenceMode, AModelIsEvaluatedAndGatheredAndTrainedAfterwards) {
  const auto ids = make_batch({}, 0, 0, 0);
  auto plain = make_model({});
  const auto expected = plain(ids);
  expected.backward();
  for (const ThreadRanks& ranks :
       {ThreadRanks{.ranks = 2}, ThreadRanks{.ranks = 2, .backend = "gloo"},
        ThreadRanks{.ranks = 3, .backend = "gloo"},
        ThreadRanks{.ranks = 4, .backend = "gloo", .hosts = {0, 0, 1, 1}}}) {
    SCOPED_TRACE(fmt::format("{} ranks over {}", ranks.ranks, ranks.backend));
    run_ranks(ranks, [&](const World& world) {
      auto model = make_model({});
      auto sharded = shard(model, world);
      {
        const c10::InferenceMode inference;
        EXPECT_TRUE(at::equal(model(ids), expected));
        const auto full = sharded.gather_full();
        const auto actual = model->named_parameters();
        for (const auto& item : plain->named_parameters()) {
          EXPECT_TRUE(at::equal(actual[item.key()], item.value())) << item.key();
        }
      }
      auto loss = model(ids);
      EXPECT_TRUE(at::equal(loss, expected));
      loss.backward();
      EXPECT_GT(sharded.clip_grad_norm(1.0), 0);
    });
  }
}

}  // namespace
}  // namespace fullshard::testing
