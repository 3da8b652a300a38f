// SPDX-License-Identifier: Apache-2.0
// Mistakes that would crash or corrupt in silence are errors that say what to write instead.
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <sstream>

#include "fullshard/base/error.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/sgd.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSharded = "is used while it is sharded";

template <class Call>
std::string text_thrown_by(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

// A model sharded over two ranks (threads); `body` runs on both.
void with_model(const std::function<void(TinyTransformer&, ShardedModel&, const World&)>& body,
                ShardOptions options = {}) {
  run_ranks({.ranks = 2}, [&](const World& world) {
    const TrainingOptions training;
    auto model = make_model(training);
    auto sharded = shard(model, world, options);
    body(model, sharded, world);
  });
}

at::Tensor batch(const World& world) { return make_batch({}, 0, 0, world.rank()); }

TEST(Misuse, ReadingAParameterOutsideItsUnitNamesTheUnit) {
  with_model([](TinyTransformer& model, ShardedModel&, const World&) {
    auto& weight = model->blocks[1]->up->weight;
    const auto message = text_thrown_by([&] { weight.sum().item<float>(); });
    EXPECT_THAT(message, HasSubstr("a parameter of unit 'block1' is used while it is sharded"));
    EXPECT_THAT(message, HasSubstr("gather_full"));
    EXPECT_EQ(weight.sizes(), (std::vector<int64_t>{24, 6}));
  });
}

TEST(Misuse, FreezingAfterShardIsNamedAtTheStep) {
  with_model([](TinyTransformer& model, ShardedModel& sharded, const World& world) {
    Sgd optimizer(sharded, {.lr = 0.1});
    model->blocks[1]->up->weight.set_requires_grad(false);
    model(batch(world)).backward();
    const std::string named = "step(): parameter 'block1.up.weight' of unit 'block1' ";
    EXPECT_EQ(text_thrown_by([&] { optimizer.step(); }),
              named +
                  "was frozen after shard(), and would move on by momentum and weight decay: "
                  "shard() decides by requires_grad what is trained; set it before");
    model->blocks[1]->up->weight.set_requires_grad(true);
    optimizer.step();
  });
}

TEST(Misuse, UnfreezingAfterShardIsNamedAtTheStep) {
  run_ranks({.ranks = 2}, [&](const World& world) {
    auto model = make_model(TrainingOptions());
    model->blocks[1]->up->weight.set_requires_grad(false);
    auto sharded = shard(model, world);
    Sgd optimizer(sharded, {.lr = 0.1});
    model->blocks[1]->up->weight.set_requires_grad(true);
    model(batch(world)).backward();
    EXPECT_THAT(text_thrown_by([&] { optimizer.step(); }),
                HasSubstr("step(): parameter 'block1.up.weight' of unit 'block1' was frozen in "
                          "shard(), and has neither gradients nor states"));
  });
}

TEST(Misuse, NoOperatorReadsAReleasedParameter) {
  with_model([](TinyTransformer& model, ShardedModel&, const World&) {
    auto weight = model->blocks[0]->up->weight.detach();
    auto x = at::randn({3, 6});
    const std::vector<std::pair<const char*, std::function<void()>>> operators = {
        {"linear", [&] { at::linear(x, weight); }},
        {"matmul", [&] { x.matmul(weight.t()); }},
        {"mm", [&] { x.mm(weight.t()); }},
        {"add", [&] { weight.add(1); }},
        {"mul", [&] { weight.mul(2); }},
        {"mul by released",
         [&] {
           at::randn({24, 6}).mul(weight);
         }},
        {"clone", [&] { weight.clone(); }},
        {"contiguous of a transposed view", [&] { weight.t().contiguous(); }},
        {"to", [&] { weight.to(at::kDouble); }},
        {"sum", [&] { weight.sum(); }},
        {"norm", [&] { weight.norm(); }},
        {"softmax", [&] { weight.softmax(0); }},
        {"gelu", [&] { at::gelu(weight); }},
        {"embedding", [&] { at::embedding(weight, at::zeros({2}, at::kLong)); }},
        {"index_select", [&] { weight.index_select(0, at::zeros({2}, at::kLong)); }},
        {"item", [&] { weight[0][0].item<float>(); }},
        {"copy_ from",
         [&] {
           at::empty({24, 6}).copy_(weight);
         }},
        {"copy_ to",
         [&] {
           weight.copy_(at::randn({24, 6}));
         }},
        {"fill_", [&] { weight.fill_(1); }},
        {"zero_", [&] { weight.zero_(); }},
        {"add_", [&] { weight.add_(1); }},
        {"normal_", [&] { weight.normal_(); }},
        {"cat",
         [&] {
           at::cat({weight, weight});
         }},
        {"equal",
         [&] {
           weight.equal(at::zeros({24, 6}));
         }},
        {"layer_norm",
         [&] {
           at::layer_norm(at::randn({2, 6}), {6}, weight[0]);
         }},
        {"sqrt", [&] { weight.sqrt(); }},
        {"max", [&] { weight.max(); }},
        {"sort", [&] { weight.sort(); }},
        {"where",
         [&] {
           at::where(at::ones({24, 6}, at::kBool), weight, at::zeros({24, 6}));
         }},
    };
    for (const auto& [name, call] : operators) {
      EXPECT_THAT(text_thrown_by(call), HasSubstr(kSharded)) << name;
    }
  });
}

TEST(Misuse, MovingCloningAndSavingTheModuleAreRefused) {
  with_model([](TinyTransformer& model, ShardedModel&, const World&) {
    const auto converted = text_thrown_by([&] { model->to(at::kDouble); });
    EXPECT_THAT(converted, HasSubstr(kSharded));
    EXPECT_THAT(converted,
                HasSubstr("change its dtype or device (Module::to), do so before shard()"));
    EXPECT_THAT(text_thrown_by([&] { model->blocks[0]->up->clone(); }), HasSubstr(kSharded));
    const auto saved = text_thrown_by([&] {
      std::ostringstream stream;
      torch::serialize::OutputArchive archive;
      model->save(archive);
      archive.save_to(stream);
    });
    EXPECT_THAT(saved, HasSubstr(kSharded));
    EXPECT_THAT(saved, HasSubstr("save_model, save_weights or save_checkpoint"));
  });
}

TEST(Misuse, ConvertingAModuleWhoseParametersAreWholeIsNoticedAtTheNextForward) {
  ShardOptions options;
  options.sharding.zero_stage = 2;
  with_model(
      [](TinyTransformer& model, ShardedModel&, const World& world) {
        model->to(at::kDouble);
        EXPECT_THAT(text_thrown_by([&] { model(batch(world)); }),
                    HasSubstr("no longer lies in its unit's buffer"));
      },
      options);
}

TEST(Misuse, ATorchOptimizerOverTheModulesOwnParametersIsRefused) {
  for (const int stage : {0, 3}) {
    ShardOptions options;
    options.sharding.zero_stage = stage;
    with_model(
        [](TinyTransformer& model, ShardedModel&, const World& world) {
          torch::optim::SGD optimizer(model->parameters(), 0.1);
          model(batch(world)).backward();
          EXPECT_THAT(text_thrown_by([&] { optimizer.step(); }),
                      HasSubstr("fullshard::AdamW(sharded, …)"));
          EXPECT_THAT(
              text_thrown_by([&] { torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0); }),
              HasSubstr("sharded.clip_grad_norm"));
        },
        options);
  }
}

TEST(Misuse, ABackwardThroughAGraphFromBeforeTheStepIsTorchsOwnError) {
  with_model([](TinyTransformer& model, ShardedModel& sharded, const World& world) {
    Sgd optimizer(sharded, {.lr = 0.1});
    auto old = model(batch(world));
    model(batch(world)).backward();
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_THAT(text_thrown_by([&] { old.backward(); }),
                HasSubstr("modified by an inplace operation"));
  });
}

TEST(Misuse, WritingAParameterInsideForwardIsNoticed) {
  struct WritesImpl : Unit {
    WritesImpl() { weight = register_parameter("weight", at::ones({4})); }
    at::Tensor forward(at::Tensor x) {
      at::NoGradGuard no_grad;
      weight.clamp_(-1, 1);
      return x * weight;
    }
    at::Tensor weight;
  };
  run_ranks({.ranks = 2}, [&](const World& world) {
    auto module = std::make_shared<Around<WritesImpl>>();
    auto sharded = shard(module, world);
    EXPECT_THAT(text_thrown_by([&] { module->forward(at::ones({4})); }),
                HasSubstr("written in place outside gather_full"));
  });
}

TEST(Misuse, SteppingWithoutGradientsOrWithUnreducedOnesIsRefused) {
  with_model([](TinyTransformer& model, ShardedModel& sharded, const World& world) {
    Sgd optimizer(sharded, {.lr = 0.1});
    EXPECT_THAT(text_thrown_by([&] { optimizer.step(); }), HasSubstr("call backward() first"));
    {
      auto no_sync = sharded.no_sync();
      model(batch(world)).backward();
    }
    EXPECT_THAT(text_thrown_by([&] { optimizer.step(); }), HasSubstr("accumulated under no_sync"));
  });
}

TEST(Misuse, SteppingInsideAGatherScopeIsRefused) {
  with_model([](TinyTransformer& model, ShardedModel& sharded, const World& world) {
    Sgd optimizer(sharded, {.lr = 0.1});
    model(batch(world)).backward();
    auto full = sharded.gather_full();
    EXPECT_THAT(text_thrown_by([&] { optimizer.step(); }), HasSubstr("inside an open gather_full"));
    EXPECT_THAT(text_thrown_by([&] { auto second = sharded.gather_full(); }),
                HasSubstr("open already"));
  });
}

TEST(Misuse, DifferentModelsOnTheRanksAreNamed) {
  const auto message = text_thrown_by([] {
    run_ranks({.ranks = 3}, [](const World& world) {
      TrainingOptions training;
      training.model.layers = 1;
      auto model = make_model(training);
      if (world.rank() == 2) model->blocks[0]->up->bias.set_requires_grad(false);
      auto sharded = shard(model, world);
    });
  });
  EXPECT_THAT(message, HasSubstr("ranks hold different models"));
  EXPECT_THAT(message, HasSubstr("rank 0 has block0.up.bias [24] Float in unit 'block0', rank 2 "
                                 "has block0.up.bias [24] Float frozen"));
}

}  // namespace
}  // namespace fullshard::testing
