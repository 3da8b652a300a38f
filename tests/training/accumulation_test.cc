// SPDX-License-Identifier: Apache-2.0
// Gradients of several backwards are added in fp32, whatever dtype they come in.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <optional>

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"

namespace fullshard {
namespace {

// The gradient of its weight is its input.
struct ScaleImpl : Unit {
  ScaleImpl() : weight(register_parameter("weight", at::ones({64}))) {}
  at::Tensor forward(const at::Tensor& x) { return (weight * x).sum(); }
  at::Tensor weight;
};
FULLSHARD_UNIT(Scale);

// In bf16 every small one would be lost beside the first: 256 + 0.5 = 256.
constexpr double kFirst = 256, kSmall = 0.5;
constexpr int kNumSmall = 8;

void backward(Scale& model, double value) {
  model(at::full({64}, value, at::kBFloat16)).backward();
}

struct Case {
  int ranks;
  Strategy strategy;
  bool no_sync;
  bool contiguous;
};

double accumulated(const Case& one) {
  double found = 0;
  run_ranks({one.ranks}, [&](const World& world) {
    Scale model;
    ShardOptions options;
    options.param_dtype = at::kBFloat16;
    options.sharding.strategy = one.strategy;
    options.contiguous_gradients = one.contiguous;
    auto sharded = shard(model, world, options);
    {
      std::optional<NoSync> scope;
      if (one.no_sync) scope.emplace(sharded.no_sync());
      backward(model, kFirst);
      for (int i = 1; i < kNumSmall; ++i) backward(model, kSmall);
    }
    backward(model, kSmall);
    for (const auto& piece : sharded.pieces()) {
      EXPECT_EQ(piece.gradient.scalar_type(), at::kFloat);
      if (world.rank() == 0) found = piece.gradient[0].item<double>();
    }
  });
  return found;
}

TEST(Accumulation, AddsBf16GradientsInFp32) {
  for (const int ranks : {1, 2, 3}) {
    for (const auto strategy :
         {Strategy::no_shard, Strategy::shard_grad_op, Strategy::full_shard}) {
      for (const bool no_sync : {false, true}) {
        for (const bool contiguous : {false, true}) {
          EXPECT_EQ(accumulated({ranks, strategy, no_sync, contiguous}),
                    kFirst + kNumSmall * kSmall)
              << ranks << " ranks, " << name_of(strategy) << ", no_sync " << no_sync
              << ", contiguous " << contiguous;
        }
      }
    }
  }
}

TEST(Accumulation, DroppedGradientsGiveTheWideBufferBack) {
  run_ranks({2}, [](const World& world) {
    Scale model;
    ShardOptions options;
    options.param_dtype = at::kBFloat16;
    auto sharded = shard(model, world, options);
    {
      const auto scope = sharded.no_sync();
      backward(model, kFirst);
    }
    sharded.zero_grad();
    EXPECT_EQ(sharded.ledger().held(tiers::Purpose::gradients), 0);
    backward(model, kSmall);
    EXPECT_EQ(sharded.pieces().at(0).gradient[0].item<double>(), kSmall);
  });
}

}  // namespace
}  // namespace fullshard
