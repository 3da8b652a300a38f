// SPDX-License-Identifier: Apache-2.0
// A backward that throws drops what it had made, and says so where it took earlier gradients along.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"
#include "fullshard/optim/sgd.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

constexpr const char* kLost =
    "a backward failed after earlier micro-batches had left gradients, and theirs were dropped "
    "with its own; call zero_grad() and start the accumulation again";

struct FuseBlockImpl : Unit {
  FuseBlockImpl() { linear = register_module("linear", torch::nn::Linear(3, 3)); }
  at::Tensor forward(at::Tensor x) { return linear(x).tanh(); }
  torch::nn::Linear linear{nullptr};
};
FULLSHARD_UNIT(FuseBlock);

// While it is armed, its backward throws when the later blocks have their gradients.
struct FusedImpl : Unit {
  FusedImpl() {
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), FuseBlock()));
    }
    at::NoGradGuard no_grad;
    auto generator = at::detail::createCPUGenerator(4);
    for (auto& parameter : parameters()) parameter.normal_(0, 1, generator);
  }
  at::Tensor forward(at::Tensor x) {
    x = blocks[1](blocks[0](x));
    if (armed) {
      x.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("blown"); });
    }
    return blocks[3](blocks[2](x));
  }
  bool armed = false;
  std::vector<FuseBlock> blocks;
};
FULLSHARD_UNIT(Fused);

at::Tensor micro_batch(int index, int rank) {
  auto generator = at::detail::createCPUGenerator(10 * index + rank);
  return at::randn({2, 3}, generator);
}

struct FailureSetting {
  int ranks, stage;
  bool no_sync, contiguous;
};

void for_every_failure(
    const std::function<void(Fused&, ShardedModel&, const World&, const FailureSetting&)>& body) {
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 2, 3}) {
      for (const bool no_sync : {false, true}) {
        for (const bool contiguous : {true, false}) {
          const FailureSetting setting{ranks, stage, no_sync, contiguous};
          SCOPED_TRACE(fmt::format("{} ranks, stage {}, no_sync {}, contiguous {}", ranks, stage,
                                   no_sync, contiguous));
          run_ranks({.ranks = ranks}, [&](const World& world) {
            ShardOptions options;
            options.sharding.zero_stage = stage;
            options.contiguous_gradients = contiguous;
            Fused model;
            auto sharded = shard(model, world, options);
            body(model, sharded, world, setting);
          });
        }
      }
    }
  }
}

void run_micro_batch(Fused& model, int index, const World& world) {
  model(micro_batch(index, world.rank())).pow(2).sum().backward();
}

void fail_backward(Fused& model, const World& world) {
  model->armed = true;
  EXPECT_THROW(run_micro_batch(model, 7, world), std::exception);
  model->armed = false;
}

// Two micro-batches, the first of them inside no_sync when asked for.
void accumulate(Fused& model, ShardedModel& sharded, const World& world,
                const FailureSetting& setting) {
  {
    std::optional<NoSync> no_sync;
    if (setting.no_sync) no_sync.emplace(sharded.no_sync());
    run_micro_batch(model, 0, world);
  }
  run_micro_batch(model, 1, world);
}

std::vector<at::Tensor> gradients_of(const ShardedModel& sharded) {
  std::vector<at::Tensor> gradients;
  for (const auto& piece : sharded.pieces()) gradients.push_back(piece.gradient.clone());
  return gradients;
}

void expect_same(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(at::equal(actual[i], expected[i])) << i;
}

TEST(FailedBackward, IsReportedByWhateverUsesTheGradientsNext) {
  using Use = std::function<void(Fused&, ShardedModel&, Sgd&, const World&)>;
  const std::vector<std::pair<const char*, Use>> uses = {
      {"step", [](Fused&, ShardedModel&, Sgd& optimizer, const World&) { optimizer.step(); }},
      {"norm", [](Fused&, ShardedModel& sharded, Sgd&, const World&) { sharded.grad_norm(); }},
      {"clip",
       [](Fused&, ShardedModel& sharded, Sgd&, const World&) { sharded.clip_grad_norm(1); }},
      {"a further micro-batch and a step",
       [](Fused& model, ShardedModel&, Sgd& optimizer, const World& world) {
         run_micro_batch(model, 2, world);
         optimizer.step();
       }},
  };
  for_every_failure(
      [&](Fused& model, ShardedModel& sharded, const World& world, const FailureSetting& setting) {
        Sgd optimizer(sharded, {.lr = 0.1});
        accumulate(model, sharded, world, setting);
        const auto expected = gradients_of(sharded);
        optimizer.zero_grad();
        for (const auto& [name, use] : uses) {
          SCOPED_TRACE(name);
          {
            std::optional<NoSync> no_sync;
            if (setting.no_sync) no_sync.emplace(sharded.no_sync());
            run_micro_batch(model, 0, world);
            fail_backward(model, world);
          }
          EXPECT_EQ(message_of([&] { use(model, sharded, optimizer, world); }), kLost);
          EXPECT_EQ(sharded.counters().live_numel, 0);
          optimizer.zero_grad();
          accumulate(model, sharded, world, setting);
          expect_same(gradients_of(sharded), expected);
          optimizer.zero_grad();
        }
      });
}

TEST(FailedBackward, ThatTookNothingAlongIsOverWithTheNextOne) {
  for_every_failure(
      [&](Fused& model, ShardedModel& sharded, const World& world, const FailureSetting& setting) {
        Sgd optimizer(sharded, {.lr = 0.1});
        accumulate(model, sharded, world, setting);
        const auto expected = gradients_of(sharded);
        optimizer.zero_grad();
        fail_backward(model, world);
        EXPECT_EQ(message_of([&] { optimizer.step(); }),
                  "step(): there are no gradients; call backward() first");
        accumulate(model, sharded, world, setting);
        expect_same(gradients_of(sharded), expected);
        EXPECT_NO_THROW(optimizer.step());
      });
}

}  // namespace
}  // namespace fullshard::testing
