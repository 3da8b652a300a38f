// SPDX-License-Identifier: Apache-2.0
// Configuration files as they are written for DeepSpeed and Accelerate, applied to a real model.
#include "fullshard/train/apply_plan.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <functional>

#include "fullshard/base/error.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/nn/deferred.h"
#include "fullshard/nn/unit.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/schedules/warmup_schedules.h"
#include "tests/files.h"

namespace fullshard::train {
namespace {

using ::testing::HasSubstr;

struct BlockImpl : Unit {
  BlockImpl() : linear(register_module("linear", torch::nn::Linear(6, 6))) {}
  at::Tensor forward(const at::Tensor& x) { return x + linear(x).tanh(); }
  torch::nn::Linear linear;
};
FULLSHARD_UNIT(Block);

struct ModelImpl : Unit {
  ModelImpl()
      : first(register_module("first", Block())), second(register_module("second", Block())) {}
  at::Tensor forward(const at::Tensor& x) { return second(first(x)); }
  Block first, second;
};
FULLSHARD_UNIT(Model);

Model make_model() {
  Model model;
  at::NoGradGuard no_grad;
  uint64_t seed = 1;
  for (auto& parameter : model->parameters()) {
    parameter.normal_(0, 0.3, at::detail::createCPUGenerator(seed++));
  }
  return model;
}

// Five steps; gives rank 0's masters.
at::Tensor train(const World& world, Model& model, ShardedModel& sharded, Stepper& stepper) {
  for (int step = 0; step < 5; ++step) {
    const auto seed = static_cast<uint64_t>(10 * step + world.rank());
    stepper.backward(model(at::randn({3, 6}, at::detail::createCPUGenerator(seed)))
                         .to(at::kFloat)
                         .pow(2)
                         .mean());
    EXPECT_FALSE(stepper.step().skipped);
  }
  std::vector<at::Tensor> parts;
  for (const auto& piece : sharded.pieces()) parts.push_back(piece.master.clone());
  return at::cat(parts);
}

constexpr const char* kDeepSpeed = R"({
  // a comment, as DeepSpeed's own reader allows
  "train_micro_batch_size_per_gpu": 3,
  "gradient_accumulation_steps": 1,
  "gradient_clipping": 0.25,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 50, "overlap_comm": false},
  "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3, "warmup_max_lr": 0.01, "warmup_type": "linear"}},
})";

TEST(ApplyPlan, ADeepSpeedFileTrainsLikeTheSameSettingsInCode) {
  run_ranks({2}, [](const World& world) {
    auto model = make_model();
    const auto plan = Plan::parse(kDeepSpeed, "ds.json", {.ranks = world.size()});
    auto sharded = shard(model, world, plan);
    const auto optimizer = make_optimizer(sharded, plan);
    LrScheduler scheduler(make_schedule(plan, 100), *optimizer);
    Stepper stepper(sharded, *optimizer, stepper_options_of(plan), &scheduler);
    const auto found = train(world, model, sharded, stepper);

    auto same_model = make_model();
    ShardOptions options;
    options.sharding.zero_stage = 2;
    options.param_dtype = options.buffer_dtype = at::kBFloat16;
    auto same = shard(same_model, world, options);
    AdamW adamw(same,
                {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1});
    LrScheduler same_scheduler(
        make_warmup_lr(
            {.warmup_max_lr = 0.01, .warmup_num_steps = 3, .warmup_type = WarmupType::linear}),
        adamw);
    Stepper same_stepper(same, adamw, {.max_grad_norm = 0.25}, &same_scheduler);
    EXPECT_TRUE(at::equal(found, train(world, same_model, same, same_stepper)));
    EXPECT_EQ(sharded.counters().overlapped, 0);
    EXPECT_GT(sharded.recorder().totals(Operation::reduce_scatter).calls, 0);
  });
}

TEST(ApplyPlan, AnAccelerateFileChoosesStrategyWrappingAndPrecision) {
  const auto plan = Plan::parse(R"(
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: fp16
num_machines: 1
num_processes: 2
use_cpu: true
fsdp_config:
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: Block
  fsdp_backward_prefetch: BACKWARD_POST
  fsdp_forward_prefetch: true
  fsdp_activation_checkpointing: true
  fsdp_sync_module_states: true
)",
                                "fsdp.yaml");
  const auto options = shard_options_of(plan);
  EXPECT_EQ(options.sharding.strategy, Strategy::shard_grad_op);
  EXPECT_EQ(options.param_dtype, at::kHalf);
  EXPECT_EQ(options.schedule.backward_prefetch, BackwardPrefetch::post);
  EXPECT_TRUE(options.schedule.forward_prefetch);
  EXPECT_TRUE(options.sync_module_states);
  EXPECT_FALSE(options.recompute.is_none());
  EXPECT_TRUE(stepper_options_of(plan).loss_scale.has_value());
  run_ranks({2}, [&](const World& world) {
    auto model = make_model();
    auto sharded = shard(model, world, plan);
    EXPECT_THAT(sharded.tree(), HasSubstr("second"));
    const auto optimizer = make_optimizer(sharded, plan);
    EXPECT_EQ(optimizer->name(), "AdamW");
    EXPECT_EQ(optimizer->lr(), 5e-5);  // the Trainer's, without an optimizer section
  });
}

constexpr const char* kAccelerate = R"(
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: Block
)";

// Such files ask for rank 0's values unless they say otherwise.
TEST(ApplyPlan, ADeferredModelIsShardedByAnAccelerateFileAsItIs) {
  for (const std::string more : {"", "  fsdp_version: 2\n", "  fsdp_sync_module_states: true\n"}) {
    SCOPED_TRACE(more);
    const auto plan = Plan::parse(kAccelerate + more, "fsdp.yaml");
    EXPECT_TRUE(shard_options_of(plan).sync_module_states);
    for (const int ranks : {1, 2, 3}) {
      run_ranks({ranks}, [&](const World& world) {
        auto model = deferred<Model>();
        auto sharded = shard(model, world, plan);
        EXPECT_FALSE(sharded.options().sync_module_states);
        initialise_weights(sharded, 1, [](const std::string&, at::Tensor& tensor, uint64_t) {
          tensor.fill_(0.5);
        });
        EXPECT_NO_THROW(model(at::ones({3, 6})));
      });
    }
  }
}

TEST(ApplyPlan, RanksWhoseModelIsDeferredStillTakeRank0sValues) {
  const auto plan = Plan::parse(kAccelerate, "fsdp.yaml");
  const auto original = make_model()->parameters();
  run_ranks({3}, [&](const World& world) {
    auto model = world.rank() == 0 ? make_model() : deferred<Model>();
    auto sharded = shard(model, world, plan);
    EXPECT_TRUE(sharded.options().sync_module_states);
    const auto full = sharded.gather_full();
    const auto parameters = model->parameters();
    ASSERT_EQ(parameters.size(), original.size());
    for (size_t i = 0; i < original.size(); ++i) {
      EXPECT_TRUE(at::equal(parameters[i], original[i])) << i;
    }
  });
}

// As DeepSpeed's engine broadcasts them.
TEST(ApplyPlan, ADeepSpeedFileTakesRank0sValues) {
  const auto plan = Plan::parse(R"({"zero_optimization": {"stage": 3}})", "ds_config.json");
  run_ranks({2}, [&](const World& world) {
    auto model = make_model();
    at::NoGradGuard no_grad;
    const auto original = model->parameters().front().clone();
    model->parameters().front().add_(world.rank());
    auto sharded = shard(model, world, plan);
    const auto full = sharded.gather_full();
    EXPECT_TRUE(at::equal(model->parameters().front(), original));
  });
}

std::vector<at::Tensor> masters_of(const ShardedModel& sharded) {
  std::vector<at::Tensor> masters;
  for (const auto& piece : sharded.pieces()) masters.push_back(piece.master.clone());
  return masters;
}

TEST(ApplyPlan, ADeferredModelGoesOnFromItsLastCheckpoint) {
  const testing::TemporaryFolder folder;
  const auto plan = Plan::parse(kAccelerate, "fsdp.yaml");
  run_ranks({2}, [&](const World& world) {
    auto model = make_model();
    auto sharded = shard(model, world, plan);
    AdamW optimizer(sharded, {.lr = 0.01});
    model(at::ones({3, 6})).pow(2).mean().backward();
    optimizer.step();
    save_checkpoint(folder.file(checkpoint_name(3)), sharded, optimizer, {.step = 3});

    auto later = deferred<Model>();
    auto resumed = shard(later, world, plan);
    AdamW resumed_optimizer(resumed, {.lr = 0.5});
    const LastCheckpoint last = last_checkpoint(folder.path());
    EXPECT_EQ(last.folder, folder.file("step-000003"));
    EXPECT_EQ(load_checkpoint(last.folder, resumed, resumed_optimizer).progress.step, 3);
    const auto expected = masters_of(sharded), found = masters_of(resumed);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
  });
}

// What a file says of offload reaches the engine, also in a user's own program.
TEST(ApplyPlan, TellsTheEngineOfOffload) {
  const testing::TemporaryFolder folder;
  const auto plan = Plan::parse(
      R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3,
          "offload_optimizer": {"device": "nvme", "nvme_path": ")" +
          folder.path() + R"("}}})",
      "ds.json", {.device = "cpu"});
  run_ranks({2}, [&](const World& world) {
    auto model = make_model();
    auto sharded = shard(model, world, plan);
    const auto optimizer = make_optimizer(sharded, plan);
    EXPECT_GT(sharded.ledger().held(tiers::Purpose::optimizer, tiers::Tier::disk), 0);
    EXPECT_EQ(sharded.ledger().held(tiers::Purpose::optimizer, tiers::Tier::device), 0);
  });
}

TEST(ApplyPlan, EveryOptimizerTypeIsMade) {
  run_ranks({1}, [](const World& world) {
    auto model = make_model();
    Plan plan;
    plan.sharding.strategy = "NO_SHARD";
    auto sharded = shard(model, world, plan);
    for (const std::string type :
         {"Adam", "AdamW", "Lamb", "Lion", "Adagrad", "SGD", "OneBitAdam"}) {
      plan.optimizer.type = type;
      EXPECT_EQ(make_optimizer(sharded, plan)->lr(), 5e-5) << type;
    }
    plan.optimizer.type = "Adafactor";
    try {
      make_optimizer(sharded, plan);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("optimizer type 'Adafactor': none of Adam, AdamW"));
      EXPECT_EQ(error.exit_status(), 2);
    }
  });
}

std::string usage_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2);
    return error.what();
  }
  return "none";
}

TEST(ApplyPlan, AnAutoThatNothingResolvesIsOneErrorAtShard) {
  constexpr auto kText = R"({"train_batch_size": "auto", "zero_optimization": {"stage": 3,
    "reduce_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}})";
  auto model = make_model();
  EXPECT_EQ(usage_error([&] { shard(model, World::single(), Plan::parse(kText, "ds.json")); }),
            "ds.json:2: zero_optimization.reduce_bucket_size: is \"auto\", which needs the "
            "model's hidden_size; write a number, or give PlanOptions::inputs.hidden_size\n"
            "error: ds.json:2: zero_optimization.stage3_param_persistence_threshold: is \"auto\", "
            "which needs the model's hidden_size; write a number, or give "
            "PlanOptions::inputs.hidden_size");
  const auto plan = Plan::parse(kText, "ds.json", {.inputs = {.hidden_size = 6}});
  EXPECT_EQ(shard(model, World::single(), plan).options().traffic.reduce_bucket_size, 36);
}

TEST(ApplyPlan, AccumulationFollowsFromTheRanks) {
  const auto plan =
      Plan::parse(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2})", "ds.json");
  EXPECT_EQ(stepper_options_of(plan, 3).accumulation_steps, 4);
  EXPECT_EQ(stepper_options_of(plan, 4).accumulation_steps, 3);
  EXPECT_EQ(usage_error([&] { stepper_options_of(plan); }),
            "gradient_accumulation_steps follows from train_batch_size 24, "
            "train_micro_batch_size_per_gpu 2 and the number of ranks, which is not said; call "
            "stepper_options_of(plan, world.size())");
  EXPECT_EQ(stepper_options_of(Plan()).accumulation_steps, 1);
}

// The rate that is trained with is the one that the table shows.
TEST(ApplyPlan, TheFlagOfTheLearningRateIsTrainedWith) {
  const auto plan = Plan::parse(
      R"({"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
          "scheduler": {"type": "WarmupLR",
                        "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}}})",
      "ds.json", {.flags = {{"--lr", "0.25"}}});
  EXPECT_EQ(make_schedule(plan, 10)->at(5, *plan.optimizer.lr).lr, 0.25);
}

TEST(ApplyPlan, NoStepHasARateOfZeroThatNobodyAskedFor) {
  for (const Plan& plan :
       {Plan(), Plan::from_words("", ""), Plan::parse(R"({"train_batch_size": 2})", "ds.json")}) {
    const auto schedule = make_schedule(plan, 10);
    for (int64_t step = 0; step < 10; ++step) EXPECT_GT(schedule->at(step, 5e-5).lr, 0) << step;
    EXPECT_EQ(schedule->at(0, 5e-5).lr, 5e-5);
  }
  // DeepSpeed's own has two, and a warning says so.
  const auto plan = Plan::parse(
      R"({"train_batch_size": 2, "scheduler": {"type": "WarmupLR",
          "params": {"warmup_max_lr": 0.5, "warmup_num_steps": 0}}})",
      "ds.json");
  EXPECT_EQ(make_schedule(plan, 10)->at(1, 5e-5).lr, 0);
  EXPECT_EQ(make_schedule(plan, 10)->at(2, 5e-5).lr, 0.5);
  ASSERT_EQ(plan.warnings().size(), 1u);
  EXPECT_EQ(plan.warnings()[0].text(),
            "ds.json:2: scheduler.params.warmup_num_steps: is 0, but DeepSpeed's warm-ups last at "
            "least two steps: the first two have a learning rate of 0; for no warm-up, "
            "leave out the scheduler section");
}

TEST(ApplyPlan, ACycleWhoseMomentumLeavesItsRangeEndsBeforeTheFirstStep) {
  Plan plan;
  plan.scheduler.type = "OneCycle";
  plan.scheduler.cycle_min_lr = 1e-4;
  plan.scheduler.cycle_max_lr = 1e-3;
  plan.scheduler.cycle_first_step_size = 10;
  plan.scheduler.decay_step_size = 10;
  plan.scheduler.decay_mom_rate = 0.1;
  EXPECT_NO_THROW(make_schedule(plan, 31));
  EXPECT_THAT(usage_error([&] { make_schedule(plan, 100); }),
              HasSubstr("makes the momentum 1.008 in step 32 of 100"));
  plan.optimizer.type = "SGD";  // whose momentum is left alone
  EXPECT_NO_THROW(make_schedule(plan, 100));
}

TEST(ApplyPlan, UseCpuAndTheDeviceMustAgree) {
  const auto plan = Plan::parse("distributed_type: FSDP\nuse_cpu: true\n", "a.yaml");
  EXPECT_EQ(usage_error([&] { plan.check(1, "cuda"); }),
            "a.yaml:2: use_cpu: asks for the CPU, but the run is on CUDA; use the device cpu, or "
            "leave the key out");
  EXPECT_EQ(usage_error([&] { plan.check(1, "cpu"); }), "none");
}

TEST(ApplyPlan, EveryScheduleTypeIsMade) {
  Plan plan;
  plan.scheduler.cycle_min_lr = 1e-4;
  plan.scheduler.cycle_max_lr = 1e-3;
  plan.scheduler.warmup_num_steps = 5;
  for (const std::string type :
       {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest", "constant",
        "constant_with_warmup", "linear", "cosine"}) {
    plan.scheduler.type = type;
    EXPECT_EQ(make_schedule(plan, 50)->name(), type);
  }
}

}  // namespace
}  // namespace fullshard::train
