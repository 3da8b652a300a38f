// SPDX-License-Identifier: Apache-2.0
// A torch optimizer's states in checkpoints: they go on to the bit, and under other ranks.
#include "fullshard/optim/torch/torch_states.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "fullshard/optim/schedules/trainer_schedules.h"
#include "fullshard/stored/manifest.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using torch::optim::OptimizerParamGroup;

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(
    const std::vector<at::Tensor>& parameters)>;

template <class Kind, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](const std::vector<at::Tensor>& parameters) {
    return std::make_unique<Kind>(parameters, options);
  };
}

struct TorchCase {
  std::string name;
  std::vector<std::string> states;
  MakeOptimizer make;
};

std::vector<TorchCase> torch_cases() {
  namespace optim = torch::optim;
  return {{"torch::optim::SGD", {}, maker<optim::SGD>(optim::SGDOptions(0.1))},
          {"torch::optim::SGD",
           {"momentum_buffer"},
           maker<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).dampening(0.3))},
          {"torch::optim::Adam",
           {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
           maker<optim::Adam>(optim::AdamOptions(0.05).amsgrad(true))},
          {"torch::optim::AdamW",
           {"exp_avg", "exp_avg_sq"},
           maker<optim::AdamW>(optim::AdamWOptions(0.05))},
          {"torch::optim::Adagrad", {"sum"}, maker<optim::Adagrad>(optim::AdagradOptions(0.1))},
          {"torch::optim::RMSprop",
           {"square_avg", "momentum_buffer", "grad_avg"},
           maker<optim::RMSprop>(optim::RMSpropOptions(0.02).momentum(0.8).centered(true))}};
}

// One rank of a run that a torch optimizer steps.
struct TorchRun {
  TorchRun(const World& world, const ShardOptions& options, bool is_deferred,
           const MakeOptimizer& make)
      : run(world, options, is_deferred), pieces(run.sharded), optimizer(make(pieces.tensors())) {}

  void train(int first, int last) {
    for (int step = first; step < last; ++step) {
      run.model(small_batch(step, run.world.rank())).backward();
      run.sharded.clip_grad_norm(0.5);
      pieces.step(*optimizer);
      pieces.zero_grad();
    }
  }

  // Weights and states of whole parameters, by what they are called.
  void collect(std::map<std::string, at::Tensor>& whole, std::mutex& mutex) const {
    const at::NoGradGuard no_grad;
    const auto states = optim::states_of(pieces, *optimizer);
    const std::lock_guard lock(mutex);
    for (const auto& piece : run.sharded.pieces()) {
      int64_t numel = 1;
      for (const auto size : piece.shape) numel *= size;
      const auto put = [&](const std::string& what, const at::Tensor& values) {
        auto& target = whole[what + " of " + piece.name];
        if (!target.defined()) target = at::zeros({numel}, values.scalar_type());
        target.narrow(0, piece.begin, piece.numel()).copy_(values);
      };
      put("weights", piece.master);
      for (size_t k = 0; k < states.names.size(); ++k) {
        put(states.names[k], states.values[static_cast<size_t>(piece.group)][k].narrow(
                                 0, piece.offset, piece.numel()));
      }
      const auto counts = states.counts.find(piece.name);
      const bool has_step = counts != states.counts.end() && counts->second.contains("step");
      put("step", at::full({piece.numel()}, has_step ? counts->second.at("step") : -1, at::kLong));
    }
  }

  RankRun run;
  PieceParameters pieces;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

using Whole = std::map<std::string, at::Tensor>;

void expect_same_whole(const Whole& found, const Whole& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    EXPECT_TRUE(at::equal(found.at(name), values)) << name;
  }
}

TEST(TorchStates, GoOnToTheBit) {
  for (const auto& one : torch_cases()) {
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(one.name + " on " + std::to_string(ranks));
      const CheckpointsFolder folder;
      const auto way = plain_way(ranks);
      Whole uninterrupted, resumed;
      std::mutex mutex;
      run_ranks({.ranks = ranks}, [&](const World& world) {
        TorchRun run(world, way.options, false, one.make);
        run.train(0, 3);
        save_checkpoint(folder / "three", run.run.sharded, run.pieces, *run.optimizer, {.step = 3});
        run.train(3, 6);
        run.collect(uninterrupted, mutex);
      });
      EXPECT_EQ(stored::read_manifest(folder / "three").optimizer->name, one.name);
      EXPECT_EQ(stored::read_manifest(folder / "three").optimizer->states, one.states);
      run_ranks({.ranks = ranks}, [&](const World& world) {
        TorchRun run(world, way.options, true, one.make);
        const auto loaded =
            load_checkpoint(folder / "three", run.run.sharded, run.pieces, *run.optimizer);
        EXPECT_EQ(loaded.progress.step, 3);
        run.train(3, 6);
        run.collect(resumed, mutex);
      });
      expect_same_whole(resumed, uninterrupted);
    }
  }
}

TEST(TorchStates, LoadUnderAnyOtherLayout) {
  const MakeOptimizer make = torch_cases()[2].make;
  const CheckpointsFolder folder;
  std::mutex mutex;
  const auto loaded_as = [&](const Way& way) {
    Whole whole;
    run_ranks({.ranks = way.ranks}, [&](const World& world) {
      TorchRun run(world, way.options, true, make);
      load_checkpoint(folder / "one", run.run.sharded, run.pieces, *run.optimizer);
      run.collect(whole, mutex);
    });
    return whole;
  };
  for (const auto& saved : {plain_way(2), plain_way(3, Strategy::no_shard), plain_way(1)}) {
    Whole whole;
    run_ranks({.ranks = saved.ranks}, [&](const World& world) {
      TorchRun run(world, saved.options, false, make);
      run.train(0, 2);
      save_checkpoint(folder / "one", run.run.sharded, run.pieces, *run.optimizer, {.step = 2});
      run.collect(whole, mutex);
    });
    for (const auto& way : {plain_way(1), plain_way(3), plain_way(2, Strategy::shard_grad_op)}) {
      SCOPED_TRACE(saved.name + " loaded as " + way.name);
      expect_same_whole(loaded_as(way), whole);
    }
  }
}

// Before the first step there is none, and a loaded optimizer that had some has none then.
TEST(TorchStates, AParameterWithoutStateHasNoneAfterLoading) {
  const auto one = torch_cases()[1];
  const CheckpointsFolder folder;
  TorchRun fresh(World::single(), plain_way(1).options, false, one.make);
  save_checkpoint(folder / "none", fresh.run.sharded, fresh.pieces, *fresh.optimizer, {});
  for (const auto& tensor : stored::read_manifest(folder / "none").tensors) {
    EXPECT_FALSE(tensor.counts.has_value()) << tensor.names[0];
  }
  TorchRun trained(World::single(), plain_way(1).options, false, one.make);
  trained.train(0, 1);
  EXPECT_EQ(trained.optimizer->state().size(), trained.pieces.tensors().size());
  load_checkpoint(folder / "none", trained.run.sharded, trained.pieces, *trained.optimizer);
  EXPECT_TRUE(trained.optimizer->state().empty());
}

TEST(TorchStates, CountsAreStoredOncePerParameter) {
  const CheckpointsFolder folder;
  run_ranks({.ranks = 2}, [&](const World& world) {
    TorchRun run(world, plain_way(2).options, false, torch_cases()[3].make);
    run.train(0, 3);
    save_checkpoint(folder / "one", run.run.sharded, run.pieces, *run.optimizer, {});
  });
  for (const auto& tensor : stored::read_manifest(folder / "one").tensors) {
    const bool is_trained = !tensor.states.empty();
    EXPECT_EQ(tensor.counts.has_value(), is_trained) << tensor.names[0];
    const optim::StateCounts three = {{"step", 3}};
    EXPECT_EQ(tensor.counts.value_or(three), three);
  }
}

TEST(TorchStates, LearningRatesOfAllGroupsComeBack) {
  const CheckpointsFolder folder;
  const MakeOptimizer in_two_groups = [](const std::vector<at::Tensor>& parameters) {
    namespace optim = torch::optim;
    std::vector<OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>(parameters.begin(), parameters.begin() + 1),
                        std::make_unique<optim::SGDOptions>(optim::SGDOptions(0.5).momentum(0.9)));
    groups.emplace_back(std::vector<at::Tensor>(parameters.begin() + 1, parameters.end()),
                        std::make_unique<optim::SGDOptions>(0.25));
    return std::make_unique<optim::SGD>(groups, optim::SGDOptions(1));
  };
  TorchRun saved(World::single(), plain_way(1).options, false, in_two_groups);
  saved.train(0, 1);
  saved.optimizer->param_groups()[0].options().set_lr(0.125);
  saved.optimizer->param_groups()[1].options().set_lr(0.0625);
  save_checkpoint(folder / "one", saved.run.sharded, saved.pieces, *saved.optimizer, {});
  TorchRun loaded(World::single(), plain_way(1).options, true, in_two_groups);
  load_checkpoint(folder / "one", loaded.run.sharded, loaded.pieces, *loaded.optimizer);
  EXPECT_EQ(loaded.optimizer->param_groups()[0].options().get_lr(), 0.125);
  EXPECT_EQ(loaded.optimizer->param_groups()[1].options().get_lr(), 0.0625);
  // Only what the first group asks for: a group without momentum keeps no buffer.
  EXPECT_EQ(loaded.optimizer->state().size(), saved.optimizer->state().size());
}

TEST(TorchStates, AScheduleGoesOnAtTheSameRateWheneverItIsMade) {
  const CheckpointsFolder folder;
  const auto schedule = [] { return make_linear_schedule({.num_training_steps = 8}); };
  const auto rate_of = [](const TorchRun& run) {
    return run.optimizer->param_groups()[0].options().get_lr();
  };
  const auto stepper_of = [](TorchRun& run, LrScheduler& scheduler) {
    return Stepper(
        run.run.sharded, [&run] { run.optimizer->step(); }, [] { return 0.0; }, {}, &scheduler);
  };
  TorchRun saved(World::single(), plain_way(1).options, false, torch_cases()[3].make);
  LrScheduler scheduler(schedule(), *saved.optimizer);
  auto stepper = stepper_of(saved, scheduler);
  for (int step = 0; step < 4; ++step) {
    stepper.backward(saved.run.model(small_batch(step, 0)));
    stepper.step();
  }
  EXPECT_DOUBLE_EQ(rate_of(saved), 0.025);
  save_checkpoint(folder / "half", saved.run.sharded, saved.pieces, *saved.optimizer,
                  progress_of(stepper, &scheduler));
  for (const bool loads_first : {true, false}) {
    TorchRun run(World::single(), plain_way(1).options, false, torch_cases()[3].make);
    const auto load = [&] {
      return load_checkpoint(folder / "half", run.run.sharded, run.pieces, *run.optimizer).progress;
    };
    std::optional<Progress> progress;
    if (loads_first) progress = load();
    LrScheduler other(schedule(), *run.optimizer);
    if (!loads_first) progress = load();
    auto other_stepper = stepper_of(run, other);
    restore_progress(*progress, other_stepper, &other);
    EXPECT_DOUBLE_EQ(rate_of(run), 0.025);
    other.step();
    EXPECT_DOUBLE_EQ(rate_of(run), 0.05 * 3 / 8);
  }
}

TEST(TorchStates, ASaveThatWouldLeaveThemOutIsRefused) {
  const CheckpointsFolder folder;
  TorchRun run(World::single(), plain_way(1).options, false, torch_cases()[3].make);
  run.train(0, 1);
  const auto error = error_of_call([&] { save_checkpoint(folder / "one", run.run.sharded, {}); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_EQ(std::string(error.what()),
            "save_checkpoint: a torch optimizer steps this model, and its states would not be in "
            "the checkpoint; save with save_checkpoint(folder, sharded, pieces, optimizer, "
            "progress), or set CheckpointOptions::without_optimizer to leave them out");
  EXPECT_TRUE(entries_of(folder.path()).empty());
  save_checkpoint(folder / "one", run.run.sharded, {}, {.without_optimizer = true});
  EXPECT_FALSE(stored::read_manifest(folder / "one").optimizer.has_value());
}

TEST(TorchStates, AStepThatWasNotToldCountsToo) {
  const CheckpointsFolder folder;
  TorchRun run(World::single(), plain_way(1).options, false, torch_cases()[3].make);
  run.run.model(small_batch(0, 0)).backward();
  run.optimizer->step();
  const auto error = error_of_call([&] { save_checkpoint(folder / "one", run.run.sharded, {}); });
  EXPECT_THAT(error.what(), HasSubstr("a torch optimizer steps this model"));
}

struct OwnOptimizer : torch::optim::SGD {
  using SGD::SGD;
};

TEST(TorchStates, AnOptimizerOfOnesOwnIsRefusedByName) {
  const CheckpointsFolder folder;
  const MakeOptimizer make = maker<OwnOptimizer>(torch::optim::SGDOptions(0.1).momentum(0.9));
  run_ranks({.ranks = 2}, [&](const World& world) {
    TorchRun run(world, plain_way(2).options, false, make);
    run.train(0, 1);
    const auto error = error_of_call(
        [&] { save_checkpoint(folder / "one", run.run.sharded, run.pieces, *run.optimizer, {}); });
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("OwnOptimizer cannot be saved: what they mean is known of "
                                        "torch::optim's SGD, Adam, AdamW, Adagrad and RMSprop"));
  });
}

TEST(TorchStates, AnotherOptimizersCheckpointIsRefused) {
  const CheckpointsFolder folder;
  TorchRun saved(World::single(), plain_way(1).options, false, torch_cases()[3].make);
  saved.train(0, 1);
  save_checkpoint(folder / "one", saved.run.sharded, saved.pieces, *saved.optimizer, {});
  TorchRun other(World::single(), plain_way(1).options, true, torch_cases()[4].make);
  EXPECT_THAT(
      error_of_call([&] {
        load_checkpoint(folder / "one", other.run.sharded, other.pieces, *other.optimizer);
      }).what(),
      HasSubstr("was saved by torch::optim::AdamW with the states [exp_avg, exp_avg_sq], and this "
                "run's optimizer is torch::optim::Adagrad with [sum]"));
}

}  // namespace
}  // namespace fullshard::testing
