// SPDX-License-Identifier: Apache-2.0
// BERT and T5 in shards: a bias that one block makes and others use, tied heads, recomputed blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/plan/options.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/models/bert/bert_model.h"
#include "fullshard/models/t5/t5_model.h"
#include "fullshard/nn/module_walk.h"
#include "fullshard/optim/adamw.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

struct Run {
  std::vector<double> losses;
  std::vector<double> norms;
};

std::shared_ptr<LanguageModel> load(const std::string& folder) {
  return load_fixture(folder.starts_with("bert") ? models::make_bert : models::make_t5, folder);
}

// Every rank reads the reference's batch, so that the mean gradient is the reference's.
Run train_encoder(const std::string& folder, int ranks, Strategy strategy, bool recompute) {
  Run run;
  ShardOptions options;
  options.sharding.strategy = strategy;
  const auto reference = read_tensor_file(fixture_path(folder + "/reference.safetensors"));
  run_ranks({.ranks = ranks}, [&](const World& world) {
    const auto model = load(folder);
    nn::for_each_node(nn::walk_modules(*model), [&](const nn::ModuleNode& node) {
      if (node.class_name != model->block_class()) return;
      dynamic_cast<nn::UnitState&>(*node.module).set_recompute(recompute);
    });
    auto sharded = shard(model, world, options);
    AdamW optimizer(sharded, AdamWOptions{.lr = 1e-2});
    for (int step = 0; step < 3; ++step) {
      const auto loss = model->forward(inputs_of(reference)).loss;
      loss.backward();
      const double norm = sharded.clip_grad_norm(1e6);
      optimizer.step();
      optimizer.zero_grad();
      if (world.rank() != 0) continue;
      run.losses.push_back(loss.item<double>());
      run.norms.push_back(norm);
    }
  });
  return run;
}

double reference_norm(const TensorFile& reference) {
  double total = 0;
  for (const auto& [name, tensor] : reference) {
    if (!name.starts_with("grad.")) continue;
    const auto wide = tensor.to(at::kDouble).flatten();
    total += wide.dot(wide).item<double>();
  }
  return std::sqrt(total);
}

// With and without recomputation the encoder's states collect gradients in another order, so bits
// are compared between strategies only.
void expect_equal_strategies(const std::string& folder, int ranks, bool recompute) {
  const auto reference = read_tensor_file(fixture_path(folder + "/reference.safetensors"));
  const auto plain = train_encoder(folder, ranks, Strategy::no_shard, recompute);
  const double norm = reference_norm(reference);
  EXPECT_NEAR(plain.losses[0], reference.at("loss").item<double>(), 1e-5 * plain.losses[0]);
  EXPECT_NEAR(plain.norms[0], norm, 1e-5 * norm);
  EXPECT_LT(plain.losses[2], plain.losses[0]);
  for (const auto strategy : {Strategy::shard_grad_op, Strategy::full_shard}) {
    const auto sharded = train_encoder(folder, ranks, strategy, recompute);
    EXPECT_EQ(sharded.losses, plain.losses);
    EXPECT_EQ(sharded.norms, plain.norms);
  }
}

class ShardedEncoders : public ::testing::TestWithParam<std::string> {};

TEST_P(ShardedEncoders, TrainToTheSameBitsWhateverTheStrategy) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks" + (recompute ? ", recomputed" : ""));
      expect_equal_strategies(GetParam(), ranks, recompute);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, ShardedEncoders,
                         ::testing::Values("bert", "bert_untied", "t5", "t5_v1_1", "t5_v1_1_tied"),
                         [](const auto& folder) { return folder.param; });

}  // namespace
}  // namespace fullshard::testing
