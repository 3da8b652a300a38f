// SPDX-License-Identifier: Apache-2.0
// Against DeepSpeed's own trajectories (tests/fixtures/one_bit_adam), bytes and bits.
#include "fullshard/optim/one_bit_adam.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tests/errors.h"
#include "tests/optim/naive_optimizers.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kAdamNumel = 63 + 19 + 1;

struct TailImpl : Unit {
  TailImpl() {
    bias = register_parameter("bias", at::zeros({19}));
    scale = register_parameter("scale", at::zeros({1}));
  }
  at::Tensor forward(at::Tensor x) {
    return (bias * x.narrow(0, 0, 19)).sum() + (scale * x.narrow(0, 19, 1)).sum();
  }
  at::Tensor bias, scale;
};
FULLSHARD_UNIT(Tail);

// As the table's: the gradient is x.
struct BodyImpl : Unit {
  BodyImpl() {
    weight = register_parameter("weight", at::zeros({7, 9}));
    part = register_module("part", Tail());
  }
  at::Tensor forward(at::Tensor x, bool runs_part = true) {
    const auto own = (weight.view({63}) * x.narrow(0, 0, 63)).sum();
    return runs_part ? own + part(x.narrow(0, 63, 20)) : own;
  }
  at::Tensor flat() const { return at::cat({weight.view({63}), part->bias, part->scale}).detach(); }
  at::Tensor weight;
  Tail part{nullptr};
};
FULLSHARD_UNIT(Body);

// The maker's numbers.
float scattered(int64_t key) {
  const uint64_t hashed = (static_cast<uint64_t>(key) * 2654435761u) & 0xffffffffu;
  return (static_cast<float>(hashed >> 24) - 128) / 64;
}

at::Tensor gradient_of_step(int step, int rank) {
  auto values = at::zeros({kAdamNumel});
  for (int64_t i = 0; i < kAdamNumel; ++i) {
    values[i] = scattered(i + 1000 * step + 100000 * rank) + static_cast<float>(i % 5 - 2) / 2;
  }
  return values;
}

Body make_body(at::ScalarType dtype = at::kFloat) {
  Body body;
  at::NoGradGuard no_grad;
  int64_t key = 7777777;
  for (auto& parameter : {body->weight, body->part->bias, body->part->scale}) {
    auto flat = parameter.view({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) flat[i] = scattered(key++) / 4;
  }
  body->to(dtype);
  return body;
}

ShardOptions whole() {
  ShardOptions options;
  options.sharding.strategy = Strategy::no_shard;
  return options;
}

void step_once(Body& body, OneBitAdam& optimizer, const at::Tensor& x) {
  body(x).backward();
  optimizer.step();
  optimizer.zero_grad();
}

TEST(OneBitAdam, FollowsDeepSpeedsTrajectory) {
  std::ifstream file(FULLSHARD_SOURCE_DIR "/tests/fixtures/one_bit_adam/one_bit_adam.json");
  const auto table = nlohmann::json::parse(file);
  const auto& given = table["options"];
  const OneBitAdamOptions options{.lr = given["lr"],
                                  .beta1 = given["betas"][0],
                                  .beta2 = given["betas"][1],
                                  .epsilon = given["eps"],
                                  .weight_decay = given["weight_decay"],
                                  .freeze_step = table["freeze_step"]};
  ASSERT_EQ(table["cases"].size(), 3);
  for (const auto& test : table["cases"]) {
    ASSERT_EQ(test["steps"].size(), 20);
    run_ranks({.ranks = test["ranks"]}, [&](const World& world) {
      auto body = make_body();
      auto sharded = shard(body, world, whole());
      OneBitAdam optimizer(sharded, options);
      for (int step = 0; step < 20; ++step) {
        EXPECT_EQ(optimizer.is_frozen(), step >= 5);
        step_once(body, optimizer, gradient_of_step(step, world.rank()));
        const auto expected =
            at::tensor(test["steps"][step].get<std::vector<double>>(), at::kDouble);
        const auto error = (body->flat() - expected).abs().max().item<double>();
        EXPECT_LT(error, 1e-5) << world.size() << " ranks, step " << step;
      }
    });
  }
}

// Bytes of one iteration after the freeze, and the number of collectives.
std::pair<int64_t, int64_t> compressed_traffic(int ranks) {
  int64_t moved = -1, calls = -1;
  run_ranks({.ranks = ranks}, [&](const World& world) {
    auto body = make_body();
    auto sharded = shard(body, world, whole());
    OneBitAdam optimizer(sharded, {.freeze_step = 2});
    for (int step = 0; step < 2; ++step)
      step_once(body, optimizer, gradient_of_step(step, world.rank()));
    auto& recorder = sharded.recorder();
    recorder.reset_totals();
    step_once(body, optimizer, gradient_of_step(2, world.rank()));
    const auto gathers = recorder.totals(Operation::all_gather);
    const auto exchanges = recorder.totals(Operation::all_to_all);
    EXPECT_EQ(recorder.moved(), gathers.moved + exchanges.moved) << "something else was sent";
    if (world.rank() != 0) return;
    moved = gathers.moved + exchanges.moved;
    calls = gathers.calls + exchanges.calls;
  });
  return {moved, calls};
}

TEST(OneBitAdam, SendsOneBitPerElementInTwoMessages) {
  EXPECT_EQ(compressed_traffic(1), std::pair(int64_t{0}, int64_t{0}));
  // Padded to 64 + 32 + 16, so chunks of 7 bytes of signs beside 12 of scales, and 1 to a multiple
  // of 4; twice.
  EXPECT_EQ(compressed_traffic(2), std::pair(int64_t{20 + 20}, int64_t{2}));
  // Padded to 72 each, so 9 + 12 and 3 from both peers; twice.
  EXPECT_EQ(compressed_traffic(3), std::pair(int64_t{2 * 24 + 2 * 24}, int64_t{2}));
}

TEST(OneBitAdam, SendsGradientsWhileItWarmsUp) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto body = make_body();
    auto sharded = shard(body, world, whole());
    OneBitAdam optimizer(sharded, {.freeze_step = 3});
    auto& recorder = sharded.recorder();
    for (int step = 0; step < 3; ++step) {
      recorder.reset_totals();
      step_once(body, optimizer, gradient_of_step(step, world.rank()));
      EXPECT_EQ(recorder.totals(Operation::all_gather).calls, 0) << step;
      EXPECT_EQ(recorder.totals(Operation::all_to_all).calls, 0) << step;
      EXPECT_GE(recorder.moved(), kAdamNumel * 4) << step;
    }
  });
}

struct Kind {
  at::ScalarType master = at::kFloat;
  at::ScalarType compute = at::kFloat;
  at::ScalarType state = at::kFloat;
};

TEST(OneBitAdam, LeavesTheSameBitsOnAllRanks) {
  const std::vector<Kind> kinds = {{},
                                   {.compute = at::kBFloat16},
                                   {.compute = at::kHalf, .state = at::kBFloat16},
                                   {.master = at::kBFloat16, .compute = at::kBFloat16},
                                   {.master = at::kDouble, .compute = at::kDouble}};
  for (const auto& kind : kinds) {
    std::vector<std::vector<at::Tensor>> shared(3);  // by rank
    std::vector<at::Tensor> own(3);
    run_ranks({.ranks = 3}, [&](const World& world) {
      auto body = make_body(kind.master);
      auto options = whole();
      options.param_dtype = kind.compute;
      auto sharded = shard(body, world, options);
      OneBitAdam optimizer(sharded, {.lr = 1e-2, .freeze_step = 3, .state_dtype = kind.state});
      const auto before = sharded.pieces()[0].master.clone();
      for (int step = 0; step < 8; ++step) {
        step_once(body, optimizer, gradient_of_step(step, world.rank()).to(kind.compute));
      }
      auto& values = shared[world.rank()];
      for (const auto& piece : sharded.pieces()) values.push_back(piece.master.clone());
      EXPECT_FALSE(at::equal(values[0], before));
      values.push_back(body->flat());
      for (int group = 0; group < sharded.num_groups(); ++group) {
        values.push_back(optimizer.state(group, 0).clone());
        values.push_back(optimizer.state(group, 1).clone());
      }
      own[world.rank()] = optimizer.rank_states()[0].values.clone();
    });
    for (const int rank : {1, 2}) {
      for (size_t i = 0; i < shared[0].size(); ++i) {
        EXPECT_TRUE(at::equal(shared[rank][i], shared[0][i])) << "rank " << rank << ", " << i;
      }
      EXPECT_FALSE(at::equal(own[rank], own[0]));
    }
  }
}

TEST(OneBitAdam, EntersItsErrorsInTheLedger) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto body = make_body();
    auto sharded = shard(body, world, whole());
    const OneBitAdam optimizer(sharded, {});
    int64_t moments = 0;
    for (int group = 0; group < sharded.num_groups(); ++group) {
      moments += 2 * 4 * sharded.shard_numel(group);
    }
    EXPECT_EQ(sharded.ledger().held(tiers::Purpose::optimizer), moments + 4 * 112 + 4 * 56);
    const auto states = optimizer.rank_states();
    ASSERT_EQ(states.size(), 2);
    EXPECT_EQ(states[0].name, "worker_error");
    EXPECT_EQ(states[0].values.numel(), 112);
    EXPECT_EQ(states[1].name, "server_error");
    EXPECT_EQ(states[1].values.numel(), 56);
    EXPECT_EQ(optimizer.state_names(), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  });
}

// The loss of rank r is |p - target_r|² / 2, so that the best p is the mean of the targets.
TEST(OneBitAdam, ConvergesOnAQuadratic) {
  for (const int ranks : {2, 3}) {
    auto best = at::zeros({kAdamNumel});
    for (int rank = 0; rank < ranks; ++rank) best += gradient_of_step(0, rank) / ranks;
    run_ranks({.ranks = ranks}, [&](const World& world) {
      auto body = make_body();
      auto sharded = shard(body, world, whole());
      OneBitAdam optimizer(sharded, {.lr = 2e-2, .freeze_step = 50});
      const auto distance = [&] { return (body->flat() - best).norm().item<double>(); };
      const double at_first = distance();
      const auto target = gradient_of_step(0, world.rank());
      for (int step = 0; step < 400; ++step) {
        if (step % 100 == 99) optimizer.set_lr(optimizer.lr() / 3);
        step_once(body, optimizer, body->flat() - target);
      }
      EXPECT_LT(distance(), at_first / 50) << at_first;
    });
  }
}

TEST(OneBitAdam, IsAdamWithFrozenVarianceOnOneRank) {
  const OneBitAdamOptions options{.lr = 1e-2,
                                  .weight_decay = 0.1,
                                  .freeze_step = 3,
                                  .rules = {{.pattern = "part\\.bias", .weight_decay = 0}}};
  FixedRun run{.steps = 8};
  const auto naive = train_naively(run, naive_one_bit_adam(always(options)));
  for (const auto compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
    run.shard.param_dtype = compute;
    const auto outcome = train_fixed(
        run, [&](ShardedModel& model) { return std::make_unique<OneBitAdam>(model, options); });
    expect_close(outcome.masters, naive, c10::toString(compute), 1e-5);
  }
}

TEST(OneBitAdam, RefusesEveryOtherStrategyByName) {
  const auto refusal = [](const ShardingOptions& sharding, int ranks) {
    std::string text;
    std::mutex mutex;
    run_ranks({.ranks = ranks}, [&](const World& world) {
      auto body = make_body();
      ShardOptions options;
      options.sharding = sharding;
      auto sharded = shard(body, world, options);
      const auto error = message_of([&] { OneBitAdam optimizer(sharded, {}); });
      const std::lock_guard lock(mutex);
      text = error;
    });
    return text;
  };
  for (const auto strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::hybrid_shard,
                              Strategy::hybrid_shard_zero2}) {
    EXPECT_EQ(
        refusal({.strategy = strategy}, 2),
        fmt::format("OneBitAdam: the model is sharded by {} over 2 ranks, but every rank must "
                    "hold all of it; use NO_SHARD or ZeRO stage 0, or another optimizer",
                    name_of(strategy)));
    EXPECT_EQ(refusal({.strategy = strategy}, 1), "no error");
  }
  for (const int stage : {1, 2, 3}) {
    EXPECT_THAT(refusal({.zero_stage = stage}, 2),
                HasSubstr(fmt::format("sharded by ZeRO stage {} over 2 ranks", stage)));
  }
  EXPECT_EQ(refusal({.zero_stage = 0}, 2), "no error");
  EXPECT_EQ(refusal({.strategy = Strategy::no_shard}, 3), "no error");
}

TEST(OneBitAdam, SaysWhichParameterHasAGradientOnSomeRanksOnly) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto body = make_body();
    auto sharded = shard(body, world, whole());
    OneBitAdam optimizer(sharded, {.freeze_step = 2});
    for (int step = 0; step < 2; ++step)
      step_once(body, optimizer, gradient_of_step(step, world.rank()));
    body(gradient_of_step(2, world.rank()), world.rank() == 0).backward();
    EXPECT_EQ(message_of([&] { optimizer.step(); }),
              "OneBitAdam: parameter 'part.bias' has a gradient on rank 0 and none on rank 1; run "
              "the same units on every rank");
  });
}

at::Tensor mean_of_two(int step) {
  return (gradient_of_step(step, 0) + gradient_of_step(step, 1)) * 0.5f;
}

at::Tensor gradients_of(const ShardedModel& model) {
  std::vector<at::Tensor> parts;
  for (const auto& piece : model.pieces()) parts.push_back(piece.gradient);
  return at::cat(parts);
}

TEST(OneBitAdam, ReducesUntilTheLastWarmUpStepIsTaken) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto body = make_body();
    auto sharded = shard(body, world, whole());
    OneBitAdam optimizer(sharded, {.freeze_step = 2});
    step_once(body, optimizer, gradient_of_step(0, world.rank()));
    EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr("there are no gradients"));
    EXPECT_EQ(optimizer.num_steps(), 1);
    body(gradient_of_step(1, world.rank())).backward();
    EXPECT_TRUE(at::equal(gradients_of(sharded), mean_of_two(1)));
    optimizer.step();
    optimizer.zero_grad();
    body(gradient_of_step(2, world.rank())).backward();
    EXPECT_TRUE(at::equal(gradients_of(sharded), gradient_of_step(2, world.rank())));
  });
}

// What a checkpoint holds of one rank.
std::vector<at::Tensor> saved_values(ShardedModel& model, const OneBitAdam& optimizer) {
  std::vector<at::Tensor> values;
  for (const auto& piece : model.pieces()) values.push_back(piece.master);
  for (int group = 0; group < model.num_groups(); ++group) {
    values.push_back(optimizer.state(group, 0));
    values.push_back(optimizer.state(group, 1));
  }
  for (const auto& state : optimizer.rank_states()) values.push_back(state.values);
  return values;
}

TEST(OneBitAdam, GoesOnWithTheSameBitsAfterARestore) {
  const OneBitAdamOptions options{.lr = 1e-2, .freeze_step = 3};
  run_ranks({.ranks = 2}, [&](const World& world) {
    auto body = make_body(), second = make_body();
    auto sharded = shard(body, world, whole()), restored = shard(second, world, whole());
    OneBitAdam optimizer(sharded, options), after(restored, options);
    for (int step = 0; step < 5; ++step)
      step_once(body, optimizer, gradient_of_step(step, world.rank()));
    const auto from = saved_values(sharded, optimizer), to = saved_values(restored, after);
    for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
    after.restore_num_steps(optimizer.num_steps());
    for (int step = 5; step < 8; ++step) {
      step_once(body, optimizer, gradient_of_step(step, world.rank()));
      step_once(second, after, gradient_of_step(step, world.rank()));
      EXPECT_TRUE(at::equal(body->flat(), second->flat())) << step;
    }
  });
}

TEST(OneBitAdam, LeavesAModelThatReducesAgain) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto body = make_body();
    auto sharded = shard(body, world, whole());
    {
      OneBitAdam optimizer(sharded, {.freeze_step = 2});
      for (int step = 0; step < 3; ++step)
        step_once(body, optimizer, gradient_of_step(step, world.rank()));
    }
    body(gradient_of_step(3, world.rank())).backward();
    EXPECT_TRUE(at::equal(gradients_of(sharded), mean_of_two(3)));
  });
}

}  // namespace
}  // namespace fullshard::testing
