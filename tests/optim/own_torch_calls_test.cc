// SPDX-License-Identifier: Apache-2.0
// A torch optimizer over pieces whose own step() and zero_grad() are called, as in a loop over a
// plain model.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include "fullshard/nn/unit.h"
#include "fullshard/optim/torch/torch_optimizer.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using TorchOptimizer = torch::optim::Optimizer;

struct CurvedImpl : Unit {
  explicit CurvedImpl(int64_t width) {
    layer = register_module("layer", torch::nn::Linear(width, width));
  }
  at::Tensor forward(at::Tensor x) { return x + layer(x).tanh(); }
  torch::nn::Linear layer{nullptr};
};
FULLSHARD_UNIT(Curved);

// The second block is left out where it is told to be.
struct CurvedNetImpl : Unit {
  CurvedNetImpl() {
    in = register_module("in", torch::nn::Linear(3, 5));
    first = register_module("first", Curved(5));
    second = register_module("second", Curved(5));
    out = register_module("out", torch::nn::Linear(5, 1));
  }
  at::Tensor forward(at::Tensor x) {
    x = first(in(x));
    return out(leaves_out_second ? x : second(x)).to(at::kFloat).square().mean();
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  Curved first{nullptr}, second{nullptr};
  bool leaves_out_second = false;
};
FULLSHARD_UNIT(CurvedNet);

CurvedNet make_curved() {
  CurvedNet net;
  const at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(7);
  for (auto& parameter : net->parameters()) {
    parameter.copy_(at::rand(parameter.sizes(), generator) - 0.5);
  }
  return net;
}

at::Tensor curved_batch(int step, int rank) {
  auto generator = at::detail::createCPUGenerator(100 + 10 * step + rank);
  return at::rand({4, 3}, generator);
}

using MakeTorch = std::function<std::unique_ptr<TorchOptimizer>(std::vector<at::Tensor>)>;

std::map<std::string, MakeTorch> torch_optimizers() {
  namespace optim = torch::optim;
  return {{"SGD",
           [](std::vector<at::Tensor> tensors) {
             return std::make_unique<optim::SGD>(
                 std::move(tensors), optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
           }},
          {"AdamW",
           [](std::vector<at::Tensor> tensors) {
             return std::make_unique<optim::AdamW>(std::move(tensors), optim::AdamWOptions(0.05));
           }},
          {"RMSprop",
           [](std::vector<at::Tensor> tensors) {
             return std::make_unique<optim::RMSprop>(std::move(tensors),
                                                     optim::RMSpropOptions(0.02).momentum(0.8));
           }},
          {"Adagrad", [](std::vector<at::Tensor> tensors) {
             return std::make_unique<optim::Adagrad>(std::move(tensors),
                                                     optim::AdagradOptions(0.1));
           }}};
}

// What a loop of torch's has: a model whose loss it takes, an optimizer.
struct TorchLoop {
  std::function<at::Tensor(int step)> loss;
  CurvedNet& net;
  TorchOptimizer& optimizer;
};
using Loop = std::function<void(const TorchLoop& loop)>;

constexpr int kLoopSteps = 5;

// The same loop over a plain model, whose loss is the mean of those of the ranks.
std::vector<at::Tensor> plainly(int ranks, const MakeTorch& make, const Loop& loop) {
  auto net = make_curved();
  const auto optimizer = make(net->parameters());
  const auto loss = [&](int step) {
    auto sum = at::zeros({});
    for (int rank = 0; rank < ranks; ++rank) sum = sum + net(curved_batch(step, rank));
    return sum / ranks;
  };
  loop({loss, net, *optimizer});
  std::vector<at::Tensor> values;
  for (const auto& parameter : net->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

ShardOptions of_stage(int stage) {
  ShardOptions options;
  options.sharding.zero_stage = stage;
  return options;
}

void expect_as_plainly(const std::string& what, const MakeTorch& make, const Loop& loop) {
  for (const int ranks : {1, 2, 3}) {
    const auto expected = plainly(ranks, make, loop);
    for (const int stage : {0, 1, 3}) {
      SCOPED_TRACE(what + " on " + std::to_string(ranks) + " of stage " + std::to_string(stage));
      run_ranks({.ranks = ranks}, [&](const World& world) {
        auto net = make_curved();
        auto sharded = shard(net, world, of_stage(stage));
        PieceParameters pieces(sharded);
        const auto optimizer = make(pieces.tensors());
        loop({[&](int step) { return net(curved_batch(step, world.rank())); }, net, *optimizer});
        const auto full = sharded.gather_full();
        const auto found = net->parameters();
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-4, 1e-5)) << i;
        }
      });
    }
  }
}

TEST(OwnTorchCalls, TrainAsOnAPlainModelWhereverTheyStand) {
  const std::map<std::string, Loop> loops = {{"cleared first",
                                              [](const TorchLoop& loop) {
                                                for (int step = 0; step < kLoopSteps; ++step) {
                                                  loop.optimizer.zero_grad();
                                                  loop.loss(step).backward();
                                                  loop.optimizer.step();
                                                }
                                              }},
                                             {"cleared before the backward",
                                              [](const TorchLoop& loop) {
                                                for (int step = 0; step < kLoopSteps; ++step) {
                                                  const auto loss = loop.loss(step);
                                                  loop.optimizer.zero_grad();
                                                  loss.backward();
                                                  loop.optimizer.step();
                                                }
                                              }},
                                             {"cleared last",
                                              [](const TorchLoop& loop) {
                                                for (int step = 0; step < kLoopSteps; ++step) {
                                                  loop.loss(step).backward();
                                                  loop.optimizer.step();
                                                  loop.optimizer.zero_grad();
                                                }
                                              }},
                                             {"set to zero", [](const TorchLoop& loop) {
                                                for (int step = 0; step < kLoopSteps; ++step) {
                                                  loop.loss(step).backward();
                                                  loop.optimizer.step();
                                                  loop.optimizer.zero_grad(/*set_to_none=*/false);
                                                }
                                              }}};
  const auto optimizers = torch_optimizers();
  for (const auto& [name, make] : optimizers) {
    expect_as_plainly(name, make, loops.at("cleared before the backward"));
  }
  for (const auto& [name, loop] : loops) expect_as_plainly(name, optimizers.at("SGD"), loop);
}

TEST(OwnTorchCalls, AccumulateAndStepAgainAsOnAPlainModel) {
  const std::map<std::string, Loop> loops = {
      {"two backwards a step",
       [](const TorchLoop& loop) {
         for (int step = 0; step < kLoopSteps; ++step) {
           loop.optimizer.zero_grad();
           loop.loss(2 * step).backward();
           loop.loss(2 * step + 1).backward();
           loop.optimizer.step();
         }
       }},
      {"never cleared",
       [](const TorchLoop& loop) {
         for (int step = 0; step < kLoopSteps; ++step) {
           loop.loss(step).backward();
           loop.optimizer.step();
         }
       }},
      {"two steps a backward",
       [](const TorchLoop& loop) {
         for (int step = 0; step < kLoopSteps; ++step) {
           loop.loss(step).backward();
           loop.optimizer.step();
           loop.optimizer.step();
           loop.optimizer.zero_grad();
         }
       }},
      {"a look between a step and the next",
       [](const TorchLoop& loop) {
         for (int step = 0; step < kLoopSteps; ++step) {
           loop.loss(step).backward();
           loop.optimizer.step();
           {
             const c10::InferenceMode looks;
             loop.loss(step);
           }
           loop.optimizer.step();
           loop.optimizer.zero_grad();
           const at::NoGradGuard no_grad;
           loop.loss(step);
         }
       }},
      {"a unit that is not used in every step", [](const TorchLoop& loop) {
         for (int step = 0; step < kLoopSteps; ++step) {
           loop.net->leaves_out_second = step % 2 == 1;
           loop.optimizer.zero_grad();
           loop.loss(step).backward();
           loop.optimizer.step();
         }
       }}};
  const auto optimizers = torch_optimizers();
  for (const auto& [name, loop] : loops) expect_as_plainly(name, optimizers.at("AdamW"), loop);
}

// In 16 bits too, clipped, and after micro-batches: to the bit what step(optimizer) does.
TEST(OwnTorchCalls, HaveTheBitsOfStepsThatAreTold) {
  for (const std::string name : {"AdamW", "SGD"}) {
    const auto make = torch_optimizers().at(name);
    for (const int ranks : {1, 3}) {
      for (const int stage : {0, 2, 3}) {
        for (const auto dtype : {at::kFloat, at::kBFloat16}) {
          SCOPED_TRACE(name + " on " + std::to_string(ranks));
          auto options = of_stage(stage);
          options.param_dtype = dtype;
          run_ranks({.ranks = ranks}, [&](const World& world) {
            const auto train = [&](bool tells) {
              auto net = make_curved();
              auto sharded = shard(net, world, options);
              PieceParameters pieces(sharded);
              const auto optimizer = make(pieces.tensors());
              std::vector<double> norms;
              for (int step = 0; step < kLoopSteps; ++step) {
                for (const int micro : {0, 1}) {
                  net(curved_batch(2 * step + micro, world.rank()).to(dtype)).backward();
                }
                norms.push_back(sharded.clip_grad_norm(0.1));
                tells ? pieces.step(*optimizer) : (void)optimizer->step();
                tells ? pieces.zero_grad() : optimizer->zero_grad();
              }
              const auto full = sharded.gather_full();
              std::vector<at::Tensor> values;
              for (const auto& each : net->parameters()) values.push_back(each.detach().clone());
              return std::pair(norms, values);
            };
            const auto [told_norms, told] = train(true);
            const auto [norms, values] = train(false);
            EXPECT_EQ(norms, told_norms);
            for (size_t i = 0; i < told.size(); ++i) EXPECT_TRUE(at::equal(values[i], told[i]));
          });
        }
      }
    }
  }
}

TEST(OwnTorchCalls, SeeTheMeanGradientAndMayChangeIt) {
  for (const auto kept : {at::kFloat, at::kBFloat16}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto net = make_curved();
      auto options = of_stage(3);
      options.gradient_dtype = kept;
      auto sharded = shard(net, world, options);
      PieceParameters pieces(sharded);
      const auto tensors = pieces.tensors();
      for (const auto& tensor : tensors) EXPECT_FALSE(tensor.grad().defined());
      net(curved_batch(0, world.rank())).backward();
      const auto views = sharded.pieces();
      for (size_t i = 0; i < views.size(); ++i) {
        EXPECT_TRUE(at::equal(tensors[i].grad(), views[i].gradient.to(at::kFloat)));
      }
      const double norm = sharded.grad_norm();
      for (const auto& tensor : tensors) tensor.grad().data().mul_(0.5);
      EXPECT_DOUBLE_EQ(sharded.grad_norm(), norm / 2);
      for (const auto& tensor : tensors) tensor.mutable_grad() = tensor.grad() * 0.5;
      EXPECT_DOUBLE_EQ(sharded.grad_norm(), norm / 4);
      pieces.zero_grad();
      for (const auto& tensor : tensors) EXPECT_FALSE(tensor.grad().defined());
    });
  }
}

// Each of two optimizers clears and steps what it was given.
TEST(OwnTorchCalls, OfTwoOptimizersAreTakenApart) {
  const auto parts = [](const std::vector<at::Tensor>& tensors,
                        const std::vector<std::string>& names) {
    std::vector<at::Tensor> biases, weights;
    for (size_t i = 0; i < tensors.size(); ++i) {
      (names[i].ends_with("bias") ? biases : weights).push_back(tensors[i]);
    }
    return std::pair(biases, weights);
  };
  const auto train = [&](const auto& loss, const auto& tensors, const auto& names) {
    const auto [biases, weights] = parts(tensors, names);
    torch::optim::SGD fast(biases, 0.2);
    torch::optim::AdamW slow(weights, torch::optim::AdamWOptions(0.02));
    for (int step = 0; step < 6; ++step) {
      loss(step).backward();
      fast.step();
      fast.zero_grad();
      if (step % 2 == 0) continue;  // the others' add up
      slow.step();
      slow.zero_grad();
    }
  };
  for (const int ranks : {1, 2, 3}) {
    auto plain = make_curved();
    std::vector<std::string> plain_names;
    for (const auto& item : plain->named_parameters()) plain_names.push_back(item.key());
    const auto plain_loss = [&](int step) {
      auto sum = at::zeros({});
      for (int rank = 0; rank < ranks; ++rank) sum = sum + plain(curved_batch(step, rank));
      return sum / ranks;
    };
    train(plain_loss, plain->parameters(), plain_names);
    for (const int stage : {0, 1, 3}) {
      run_ranks({.ranks = ranks}, [&](const World& world) {
        auto net = make_curved();
        auto sharded = shard(net, world, of_stage(stage));
        PieceParameters pieces(sharded);
        train([&](int step) { return net(curved_batch(step, world.rank())); }, pieces.tensors(),
              pieces.names());
        const auto full = sharded.gather_full();
        for (const auto& item : net->named_parameters()) {
          EXPECT_TRUE(at::allclose(item.value(), plain->named_parameters()[item.key()], 1e-4, 1e-5))
              << item.key() << " on " << ranks << " of stage " << stage;
        }
      });
    }
  }
}

struct OneNumberImpl : Unit {
  OneNumberImpl() { number = register_parameter("number", at::zeros({1})); }
  at::Tensor forward(at::Tensor x) { return (number - x).square().sum(); }
  at::Tensor number;
};
FULLSHARD_UNIT(OneNumber);

// Two of three ranks own nothing, and still see what the third one's optimizer does.
TEST(OwnTorchCalls, AreNoticedByRanksThatOwnNothing) {
  for (const int stage : {1, 2, 3}) {
    run_ranks({.ranks = 3}, [&](const World& world) {
      OneNumber model;
      auto sharded = shard(model, world, of_stage(stage));
      PieceParameters pieces(sharded);
      torch::optim::SGD optimizer(pieces.tensors(), 0.5);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        model(at::zeros({1}) + 4).backward();
        optimizer.step();
        const at::NoGradGuard no_grad;
        EXPECT_EQ(model(at::zeros({1}) + 4).item<float>(), 0) << "rank " << world.rank();
      }
    });
  }
}

std::string text_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(OwnTorchCalls, ThrowWhereTheOptimizerCannotUseWhatItSees) {
  const auto thrown = [](const ShardOptions& options, double loss_scale,
                         std::optional<ForeignOptimizerRules> rules) {
    auto net = make_curved();
    auto sharded = shard(net, World::single(), options);
    sharded.set_loss_scale(loss_scale);
    PieceParameters pieces(sharded, rules);
    torch::optim::SGD optimizer(pieces.tensors(), 0.1);
    net(curved_batch(0, 0)).backward();
    auto text = text_of([&] { optimizer.step(); });
    optimizer.zero_grad();  // does not look at them
    EXPECT_EQ(message_of([&] { pieces.step(optimizer); }),
              "step(): there are no gradients; call backward() first");
    net(curved_batch(1, 0)).backward();
    EXPECT_EQ(text_of([&] { pieces.step(optimizer); }), "nothing was thrown");
    return text;
  };
  EXPECT_THAT(thrown({}, 8, std::nullopt), HasSubstr("multiplied by the loss scale"));
  ShardOptions offloaded;
  offloaded.offload.everything = true;
  offloaded.offload.streams_on_cpu = true;
  EXPECT_THAT(thrown(offloaded, 1, std::nullopt), HasSubstr("rest outside the device (offload)"));
  EXPECT_THAT(thrown({}, 1, ForeignOptimizerRules{.zero_allow_untested_optimizer = true}),
              "nothing was thrown");
}

// One that was compared with the rules may go on by itself.
TEST(OwnTorchCalls, WaitForRulesToBeComparedWith) {
  auto net = make_curved();
  auto sharded = shard(net, World::single());
  PieceParameters pieces(sharded, ForeignOptimizerRules{.stage = 2});
  torch::optim::AdamW optimizer(pieces.tensors(), torch::optim::AdamWOptions(0.1));
  net(curved_batch(0, 0)).backward();
  EXPECT_THAT(text_of([&] { optimizer.step(); }), HasSubstr("allows some optimizers only"));
  pieces.step(optimizer);
  optimizer.zero_grad();
  net(curved_batch(1, 0)).backward();
  EXPECT_EQ(text_of([&] { optimizer.step(); }), "nothing was thrown");
}

// Where the factor of clipping could not be applied at once it goes with the gradients.
TEST(OwnTorchCalls, ClearAClipWithTheGradients) {
  const auto stepped = [](bool clips_before) {
    auto net = make_curved();
    auto sharded = shard(net, World::single());
    sharded.set_loss_scale(8);
    PieceParameters pieces(sharded);
    torch::optim::SGD optimizer(pieces.tensors(), 0.1);
    (net(curved_batch(0, 0)) * 8).backward();
    if (clips_before) sharded.clip_grad_norm(1e-3);
    optimizer.zero_grad();
    (net(curved_batch(1, 0)) * 8).backward();
    pieces.step(optimizer);
    return net->out->weight.detach().clone();
  };
  EXPECT_TRUE(at::equal(stepped(true), stepped(false)));
}

TEST(OwnTorchCalls, AreToldThatTheirPiecesAreGone) {
  auto net = make_curved();
  auto sharded = shard(net, World::single());
  std::optional<PieceParameters> pieces(std::in_place, sharded);
  torch::optim::SGD optimizer(pieces->tensors(), 0.1);
  const PieceParameters copy = *pieces;
  pieces.reset();
  net(curved_batch(0, 0)).backward();
  EXPECT_EQ(text_of([&] { optimizer.step(); }), "nothing was thrown");
  pieces.emplace(sharded);
  torch::optim::SGD orphan(pieces->tensors(), 0.1);
  pieces.reset();
  EXPECT_THAT(text_of([&] { orphan.step(); }), HasSubstr("keep it as long as the optimizer"));
}

TEST(OwnTorchCalls, MakeABackwardThroughAnOlderGraphTorchsOwnError) {
  for (const int stage : {0, 3}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto net = make_curved();
      auto sharded = shard(net, world, of_stage(stage));
      PieceParameters pieces(sharded);
      torch::optim::SGD optimizer(pieces.tensors(), 0.1);
      const auto old = net(curved_batch(0, world.rank()));
      net(curved_batch(1, world.rank())).backward();
      optimizer.step();
      EXPECT_THAT(text_of([&] { old.backward(); }), HasSubstr("modified by an inplace operation"));
    });
  }
}

TEST(OwnTorchCalls, HoldMastersThatMayNotMove) {
  auto net = make_curved();
  auto sharded = shard(net, World::single());
  const PieceParameters pieces(sharded);
  EXPECT_THAT(message_of([&] { sharded.sleep(); }),
              HasSubstr("holds tensors that look at its masters"));
}

}  // namespace
}  // namespace fullshard::testing
