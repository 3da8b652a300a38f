// SPDX-License-Identifier: Apache-2.0
// A unit of a few parameters, and what its gradients should be: the same module without the engine.
#pragma once

#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <string>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"

namespace fullshard::testing {

// Every module here starts from the same values on every call.
template <class Module>
Module seeded_case(Module module) {
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(5);
  for (auto& parameter : module->parameters()) parameter.normal_(0.0, 0.5, generator);
  return module;
}

inline at::Tensor input_of_case(int rank, int64_t width = 4) {
  auto generator = at::detail::createCPUGenerator(100 + rank);
  return at::randn({3, width}, generator);
}

using Gradients = std::map<std::string, at::Tensor>;

// The mean over ranks of the gradients of `loss(model, rank)`, without the engine.
template <class Make, class Loss>
Gradients expected_gradients(const Make& make, const Loss& loss, int ranks) {
  auto model = make();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto value = loss(model, rank);
    if (value.requires_grad()) (value / ranks).backward();
  }
  Gradients gradients;
  for (const auto& item : model->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    gradients[item.key()] =
        item.value().grad().defined() ? item.value().grad() : at::zeros_like(item.value());
  }
  return gradients;
}

// This rank's pieces against the same part of the expected gradients.
inline void expect_gradients(const ShardedModel& sharded, const Gradients& expected) {
  size_t found = 0;
  for (const auto& piece : sharded.pieces()) {
    ASSERT_TRUE(piece.gradient.defined()) << piece.name;
    const auto whole = expected.at(piece.name).flatten();
    EXPECT_TRUE(
        at::allclose(piece.gradient, whole.narrow(0, piece.begin, piece.numel()), 1e-5, 1e-6))
        << piece.name << "\n"
        << piece.gradient << "\n"
        << whole.narrow(0, piece.begin, piece.numel());
    ++found;
  }
  EXPECT_GT(found, 0u);
}

// Runs the case on 1, 2 and 3 ranks under every stage, with and without a shared copy.
template <class Make, class Loss>
void check_hooks(const Make& make, const Loss& loss) {
  for (const int ranks : {1, 2, 3}) {
    const auto expected = expected_gradients(make, loss, ranks);
    for (const int stage : {0, 2, 3}) {
      for (const bool share : {true, false}) {
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, share {}", ranks, stage, share));
        run_ranks({.ranks = ranks}, [&](const World& world) {
          auto model = make();
          ShardOptions options;
          options.sharding.zero_stage = stage;
          options.share_host_copy = share;
          auto sharded = shard(model, world, options);
          for (int repeat = 0; repeat < 2; ++repeat) {
            loss(model, world.rank()).backward();
            expect_gradients(sharded, expected);
            EXPECT_EQ(sharded.counters().live_numel, 0);
            sharded.zero_grad();
          }
        });
      }
    }
  }
}

struct HookedBlockImpl : Unit {
  explicit HookedBlockImpl(int64_t width = 4) {
    up = register_module("up", torch::nn::Linear(width, 2 * width));
    down = register_module("down", torch::nn::Linear(2 * width, width));
  }
  at::Tensor forward(at::Tensor x) { return x + down(at::gelu(up(x))); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
FULLSHARD_UNIT(HookedBlock);

struct TwiceImpl : Unit {
  TwiceImpl() { block = register_module("block", HookedBlock()); }
  at::Tensor forward(at::Tensor x) { return block(block(x)); }
  HookedBlock block{nullptr};
};
FULLSHARD_UNIT(Twice);

}  // namespace fullshard::testing
