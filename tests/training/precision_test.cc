// SPDX-License-Identifier: Apache-2.0
// 16-bit computation: the same bits for every strategy, the mathematics of a naive loop, and who
// sees which dtype.
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "fullshard/engine/engine_access.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/kernels/adamw_kernels.h"
#include "fullshard/optim/precision.h"
#include "fullshard/train/evaluation_scope.h"
#include "tests/training/expectations.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

constexpr TrainingOptions kFourSteps{.steps = 4};
constexpr double kLr = 1e-2, kDecay = 0.1;
constexpr double kOneRounding = 1.0 / 256;  // of bf16, which a loss is given in

ShardOptions precision_options(const Precision& precision, int stage) {
  ShardOptions options;
  options.sharding.zero_stage = stage;
  precision.apply_to(options);
  return options;
}

// The outcome's parameters are the masters, put together from the pieces of all ranks.
Outcome train_in(int ranks, const ShardOptions& options, const Precision& precision) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks({.ranks = ranks}, [&](const World& world) {
    auto model = make_model(kFourSteps);
    auto sharded = shard(model, world, options);
    AdamW optimizer(sharded, {.lr = kLr,
                              .weight_decay = kDecay,
                              .state_dtype = precision.optimizer_state,
                              .rounding_seed = 5});
    std::vector<double> losses, norms;
    for (int step = 0; step < kFourSteps.steps; ++step) {
      auto loss = model(make_batch(kFourSteps, step, 0, world.rank()));
      losses.push_back(loss.item<double>());
      loss.backward();
      norms.push_back(sharded.clip_grad_norm(kFourSteps.clip));
      optimizer.step();
      optimizer.zero_grad();
    }
    const std::lock_guard lock(mutex);
    for (const auto& piece : sharded.pieces()) {
      auto& whole = outcome.parameters[piece.name];
      if (!whole.defined()) whole = at::zeros(piece.shape, piece.master.scalar_type());
      whole.view({-1}).narrow(0, piece.begin, piece.numel()).copy_(piece.master);
    }
    if (world.rank() != 0) return;
    outcome.losses = std::move(losses);
    outcome.norms = std::move(norms);
  });
  return outcome;
}

double norm_of(const std::vector<at::Tensor>& gradients) {
  double squares = 0;
  for (const auto& gradient : gradients) {
    squares += gradient.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(squares);
}

optim::AdamWStep constants_of(int step, double clip) {
  optim::AdamWStep constants;
  constants.clip = clip;
  constants.beta1 = 0.9;
  constants.beta2 = 0.999;
  constants.decay = 1 - kLr * kDecay;
  constants.step_size = kLr / (1 - std::pow(0.9, step));
  constants.root_correction = std::sqrt(1 - std::pow(0.999, step));
  constants.epsilon = 1e-8;
  return constants;
}

// A copy of the model in `dtype` computes each rank's gradients; they are added in fp32, and AdamW
// changes fp32 masters.
class NaiveTraining {
 public:
  NaiveTraining(at::ScalarType dtype, int ranks)
      : ranks_(ranks), masters_(make_model(kFourSteps)), narrow_(make_model(kFourSteps)) {
    narrow_->to(dtype);
    for (const auto& p : masters_->parameters()) {
      moments_.push_back(at::zeros_like(p));
      variances_.push_back(at::zeros_like(p));
    }
  }

  Outcome train() {
    Outcome outcome;
    for (int step = 0; step < kFourSteps.steps; ++step) {
      auto gradients = mean_gradients(step, outcome);
      const double norm = norm_of(gradients);
      outcome.norms.push_back(norm);
      const double clip = std::min(1.0, kFourSteps.clip / (norm + 1e-6));
      at::NoGradGuard no_grad;
      auto masters = masters_->parameters();
      for (size_t i = 0; i < masters.size(); ++i) {
        optim::adamw_step(constants_of(step + 1, clip), masters[i].data_ptr<float>(),
                          gradients[i].const_data_ptr<float>(), moments_[i].data_ptr<float>(),
                          variances_[i].data_ptr<float>(), masters[i].numel());
      }
    }
    for (const auto& item : masters_->named_parameters()) {
      outcome.parameters[item.key()] = item.value().detach();
    }
    return outcome;
  }

 private:
  std::vector<at::Tensor> mean_gradients(int step, Outcome& outcome) {
    auto narrow = narrow_->parameters();
    const auto masters = masters_->parameters();
    std::vector<at::Tensor> sums;
    for (const auto& p : masters) sums.push_back(at::zeros_like(p));
    for (int rank = 0; rank < ranks_; ++rank) {
      for (size_t i = 0; i < narrow.size(); ++i) {
        narrow[i].set_data(masters[i].detach().to(narrow[i].scalar_type()));
        narrow[i].mutable_grad() = at::Tensor();
      }
      const auto loss = narrow_(make_batch(kFourSteps, step, 0, rank));
      if (rank == 0) outcome.losses.push_back(loss.item<double>());
      loss.backward();
      for (size_t i = 0; i < narrow.size(); ++i) sums[i].add_(narrow[i].grad().to(at::kFloat));
    }
    for (auto& sum : sums) sum.mul_(1.0f / static_cast<float>(ranks_));
    return sums;
  }

  int ranks_;
  TinyTransformer masters_, narrow_;
  std::vector<at::Tensor> moments_, variances_;
};

class SixteenBits : public ::testing::TestWithParam<const char*> {
 protected:
  Precision precision() const { return Precision::named(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Precision, SixteenBits, ::testing::Values("bf16", "fp16"));

TEST_P(SixteenBits, EveryStrategyHasTheSameBitsAndTheNaiveLoopsNumbers) {
  for (const int ranks : {1, 2, 3}) {
    const auto naive = NaiveTraining(*precision().compute, ranks).train();
    const auto first = train_in(ranks, precision_options(precision(), 0), precision());
    EXPECT_EQ(first.parameters.at("embedding.weight").scalar_type(), at::kFloat);
    expect_close(first, naive, kOneRounding);
    for (const int stage : {1, 2, 3}) {
      const auto what = fmt::format("{} ranks, stage {}", ranks, stage);
      expect_same_bits(train_in(ranks, precision_options(precision(), stage), precision()), first,
                       what);
    }
    auto apart = precision_options(precision(), 3);
    apart.share_host_copy = false;
    expect_same_bits(train_in(ranks, apart, precision()), first, fmt::format("{} copies", ranks));
  }
}

TEST_P(SixteenBits, RecomputationChangesNoBit) {
  auto options = precision_options(precision(), 3);
  const auto kept = train_in(2, options, precision());
  options.recompute = RecomputePolicy::classes({"TinyBlock"});
  expect_same_bits(train_in(2, options, precision()), kept, "recomputed");
}

TEST_P(SixteenBits, AModelThatIsNarrowAlreadyGetsWideMasters) {
  run_ranks({.ranks = 2}, [&](const World& world) {
    auto model = make_model(kFourSteps);
    model->to(*precision().compute);
    auto sharded = shard(model, world, precision_options(precision(), 3));
    for (const auto& piece : sharded.pieces()) EXPECT_EQ(piece.master.scalar_type(), at::kFloat);
    model(make_batch(kFourSteps, 0, 0, world.rank())).backward();
    for (const auto& piece : sharded.pieces()) EXPECT_EQ(piece.gradient.scalar_type(), at::kFloat);
  });
}

Precision with_narrow_masters(bool narrow_states) {
  return Precision::from({.bf16 = true,
                          .bf16_master_weights_and_grads = true,
                          .bf16_optimizer_states = narrow_states});
}

TEST(Bf16Masters, AreRoundedAlikeByEveryStrategy) {
  for (const bool narrow_states : {false, true}) {
    const auto precision = with_narrow_masters(narrow_states);
    for (const int ranks : {1, 2, 3}) {
      const auto first = train_in(ranks, precision_options(precision, 0), precision);
      EXPECT_EQ(first.parameters.at("norm.weight").scalar_type(), at::kBFloat16);
      for (const int stage : {1, 2, 3}) {
        const auto what = fmt::format("{} ranks, stage {}", ranks, stage);
        expect_same_bits(train_in(ranks, precision_options(precision, stage), precision), first,
                         what);
      }
    }
  }
}

TEST(Bf16Masters, OfAnFp32ModelAreSeenAlikeByEveryStrategy) {
  Precision precision;
  precision.master = at::kBFloat16;  // computation stays in fp32
  const auto first = train_in(2, precision_options(precision, 0), precision);
  for (const int stage : {1, 2, 3}) {
    expect_same_bits(train_in(2, precision_options(precision, stage), precision), first,
                     fmt::format("stage {}", stage));
  }
}

int64_t numel_of(const ShardedModel& sharded) {
  int64_t numel = 0;
  for (const auto& unit : engine::EngineAccess::of(sharded).units()) {
    for (const auto& group : unit->groups()) numel += group->layout().numel();
  }
  return numel;
}

// Bytes of an element between backward and step: docs/memory_layout.md.
struct Row {
  Precision precision;
  int64_t compute, master, gradient, state;
};

TEST(NarrowBytes, AreTheTables) {
  constexpr int kRanks = 2;
  for (const auto& row :
       {Row{Precision::named("bf16"), 2, 4, 4, 4}, Row{with_narrow_masters(false), 2, 2, 2, 4},
        Row{with_narrow_masters(true), 2, 2, 2, 2}}) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("master {}, state {}, stage {}", row.master, row.state, stage));
      auto options = precision_options(row.precision, stage);
      options.share_host_copy = false;
      run_ranks({.ranks = kRanks}, [&](const World& world) {
        auto model = make_model(kFourSteps);
        auto sharded = shard(model, world, options);
        AdamW optimizer(sharded, {.state_dtype = row.precision.optimizer_state});
        model(make_batch(kFourSteps, 0, 0, world.rank())).backward();
        const int64_t whole = numel_of(sharded);
        const int64_t part = stage == 0 ? whole : whole / kRanks;
        const auto& ledger = sharded.ledger();
        EXPECT_EQ(ledger.held(tiers::Purpose::optimizer), 2 * row.state * part);
        // Where the full parameters stay and are of one dtype with the master, it lies in them.
        const bool full_stays = stage < 3;
        const bool inside = full_stays && row.compute == row.master;
        EXPECT_EQ(ledger.held(tiers::Purpose::parameters), full_stays ? row.compute * whole : 0);
        EXPECT_EQ(ledger.held(tiers::Purpose::master), inside ? 0 : row.master * part);
        // Whole gradients stay where the reduction gives them in the dtype of the optimizer.
        const bool whole_stays = stage < 2 && row.gradient == row.compute;
        EXPECT_EQ(ledger.held(tiers::Purpose::gradients),
                  row.gradient * (whole_stays ? whole : part));
      });
    }
  }
}

struct InnerImpl : Unit {
  InnerImpl() {
    weight = register_parameter("weight", at::ones({2}));
    scale = register_buffer("scale", at::ones({2}));
    count = register_buffer("count", at::ones({1}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x, const std::vector<at::Tensor>& more) {
    seen = {x.scalar_type(), more[0].scalar_type(), more[1].scalar_type()};
    return x * weight * scale + more[0];
  }
  at::Tensor weight, scale, count;
  std::vector<at::ScalarType> seen;
};
FULLSHARD_UNIT(Inner);

// Between its units it computes in fp32, as code with an fp32 constant does.
struct OuterCastImpl : Unit {
  at::Tensor forward(const at::Tensor& x) {
    seen = x.scalar_type();
    const auto wide = x.to(at::kFloat);
    const auto y = first->forward(wide, {wide, at::ones({2}, at::kLong)});
    inside = y.scalar_type();
    return second->forward(y.to(at::kFloat), {y, at::ones({2}, at::kBool)});
  }
  Inner first = register_module("first", Inner());
  Inner second = register_module("second", Inner());
  at::ScalarType seen = at::kLong, inside = at::kLong;
};
FULLSHARD_UNIT(OuterCast);

template <class Body>
void with_outer(const ShardOptions& options, const Body& body) {
  run_ranks({.ranks = 2}, [&](const World& world) {
    OuterCast model;
    auto sharded = shard(model, world, options);
    body(model, sharded);
  });
}

TEST(ForwardCasts, UnitsReceiveInputsInTheComputeDtype) {
  ShardOptions options;
  options.param_dtype = at::kBFloat16;
  options.output_dtype = at::kDouble;
  with_outer(options, [](OuterCast& model, ShardedModel&) {
    const auto x = at::ones({2}).set_requires_grad(true);
    const auto y = model(x);
    using Dtypes = std::vector<at::ScalarType>;
    EXPECT_EQ(model->seen, at::kBFloat16);
    EXPECT_EQ(model->first->seen, (Dtypes{at::kBFloat16, at::kBFloat16, at::kLong}));
    EXPECT_EQ(model->second->seen, (Dtypes{at::kBFloat16, at::kBFloat16, at::kBool}));
    EXPECT_EQ(y.scalar_type(), at::kDouble);
    y.sum().backward();
    EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 4.0)));
  });
}

TEST(ForwardCasts, CanBeSwitchedOff) {
  ShardOptions options;
  options.param_dtype = at::kBFloat16;
  options.cast_forward_inputs = false;
  with_outer(options, [](OuterCast& model, ShardedModel&) {
    EXPECT_EQ(model(at::ones({2})).scalar_type(), at::kFloat);
    EXPECT_EQ(model->seen, at::kFloat);
    EXPECT_EQ(model->first->seen[0], at::kFloat);
  });
}

TEST(ForwardCasts, WithoutAParamDtypeThereAreNone) {
  with_outer({}, [](OuterCast& model, ShardedModel&) {
    model(at::ones({2}, at::kDouble));
    EXPECT_EQ(model->seen, at::kDouble);
    EXPECT_FALSE(model->casts().any());
  });
}

TEST(ForwardCasts, EndWithTheShardedModel) {
  OuterCast model;
  {
    ShardOptions options;
    options.param_dtype = at::kBFloat16;
    const auto sharded = shard(model, World::single(), options);
    EXPECT_TRUE(model->casts().any());
  }
  EXPECT_TRUE(model->is_plain());
}

TEST(BufferDtype, CastsFloatingBuffersWhereTheyAre) {
  ShardOptions options;
  options.buffer_dtype = at::kBFloat16;
  options.sync_module_states = true;
  with_outer(options, [](OuterCast& model, ShardedModel&) {
    EXPECT_EQ(model->first->scale.scalar_type(), at::kBFloat16);
    EXPECT_EQ(model->first->named_buffers()["scale"].scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(model->first->scale, at::ones({2}, at::kBFloat16)));
    EXPECT_EQ(model->first->count.scalar_type(), at::kLong);
    EXPECT_EQ(model->first->weight.scalar_type(), at::kFloat);
  });
}

std::string error_of_sharding(OuterCast& model, const ShardOptions& options) {
  try {
    shard(model, World::single(), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(BufferDtype, LeavesIgnoredModulesAlone) {
  ShardOptions options;
  options.buffer_dtype = at::kBFloat16;
  options.ignored_modules = "second";
  OuterCast model;
  const auto sharded = shard(model, World::single(), options);
  EXPECT_EQ(model->first->scale.scalar_type(), at::kBFloat16);
  EXPECT_EQ(model->second->scale.scalar_type(), at::kFloat);
}

TEST(BufferDtype, CastsOneBufferOfTwoModulesOnce) {
  ShardOptions options;
  options.buffer_dtype = at::kBFloat16;
  OuterCast model;
  model->register_buffer("scale", model->first->scale);
  EXPECT_EQ(error_of_sharding(model, options), "no error");
  EXPECT_EQ(model->named_buffers()["scale"].scalar_type(), at::kBFloat16);
  EXPECT_TRUE(model->named_buffers()["scale"].is_same(model->first->scale));
}

TEST(BufferDtype, RefusesToPartWhatSharesMemory) {
  ShardOptions options;
  options.buffer_dtype = at::kBFloat16;
  OuterCast model;
  model->register_buffer("part", model->first->scale.narrow(0, 0, 1));
  EXPECT_EQ(error_of_sharding(model, options),
            "buffer_dtype: buffer 'part' shares its memory with 'first.scale', and a cast would "
            "part them; register a copy of it, or leave buffer_dtype out");
  EXPECT_EQ(model->first->scale.scalar_type(), at::kFloat);
  OuterCast other;
  other->register_buffer("scale", other->second->scale);
  options.ignored_modules = "second";
  EXPECT_EQ(error_of_sharding(other, options),
            "buffer_dtype: buffer 'scale' is also 'second.scale' of an ignored module, which must "
            "not be cast; give each module its own, or leave buffer_dtype out");
}

TEST(Dtypes, ThatAreNotFloatingAreRefused) {
  ShardOptions options;
  options.master_dtype = at::kInt;
  OuterCast model;
  EXPECT_EQ(error_of_sharding(model, options),
            "master_dtype is Int, expected Float, BFloat16, Half or Double");
}

TEST(FrozenParameters, HaveTheComputeDtypeOnly) {
  ShardOptions options = precision_options(Precision::named("bf16"), 3);
  options.share_host_copy = false;
  run_ranks({.ranks = 2}, [&](const World& world) {
    auto model = make_model(kFourSteps);
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    auto sharded = shard(model, world, options);
    EXPECT_EQ(sharded.ledger().held(tiers::Purpose::master), 0);
    EXPECT_EQ(sharded.ledger().held(tiers::Purpose::parameters), 2 * numel_of(sharded) / 2);
  });
}

TEST(Evaluation, InSixteenBitsLeavesTrainingAsItWas) {
  const auto run = [](bool evaluates) {
    std::vector<double> losses;
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto model = make_model(kFourSteps);
      auto sharded = shard(model, world);
      AdamW optimizer(sharded, {.lr = kLr});
      for (int step = 0; step < 3; ++step) {
        const auto batch = make_batch(kFourSteps, step, 0, world.rank());
        auto loss = model(batch);
        if (evaluates) {
          const EvaluationScope scope(*model, at::kBFloat16);
          const double narrow = model(batch).item<double>(), wide = loss.item<double>();
          EXPECT_NE(narrow, wide);
          EXPECT_NEAR(narrow, wide, 0.02 * wide);
        }
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        if (world.rank() == 0) losses.push_back(loss.item<double>());
      }
    });
    return losses;
  };
  EXPECT_EQ(run(true), run(false));
}

}  // namespace
}  // namespace fullshard::testing
