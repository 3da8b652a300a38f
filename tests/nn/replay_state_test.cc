// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/replay_state.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "fullshard/nn/unit.h"

namespace fullshard::nn {
namespace {

namespace autocast = at::autocast;
using at::Tensor;

// A region of autocast on the CPU, as a user opens it.
class Region {
 public:
  explicit Region(at::ScalarType dtype, bool cache = true) {
    autocast::set_autocast_enabled(at::kCPU, true);
    autocast::set_autocast_dtype(at::kCPU, dtype);
    autocast::set_autocast_cache_enabled(cache);
    autocast::increment_nesting();
  }
  ~Region() {
    if (autocast::decrement_nesting() == 0) autocast::clear_cache();
    before_.restore();
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  AutocastState before_ = AutocastState::now({at::Device(at::kCPU)});
};

// Uses its weight twice: with a cache both share one cast, and their gradients are added in bf16.
struct TwiceImpl : Unit {
  TwiceImpl() { linear = register_module("linear", torch::nn::Linear(4, 4)); }
  Tensor forward(Tensor x) {
    seen.push_back(autocast::is_autocast_enabled(at::kCPU)
                       ? std::optional(autocast::get_autocast_dtype(at::kCPU))
                       : std::nullopt);
    cached.push_back(autocast::is_autocast_cache_enabled());
    return linear(at::gelu(linear(x))).to(at::kFloat);
  }
  torch::nn::Linear linear{nullptr};
  std::vector<std::optional<at::ScalarType>> seen;
  std::vector<bool> cached;
};
FULLSHARD_UNIT(Twice);

enum class BackwardWhere { inside, outside };

std::vector<Tensor> train_replayed(Twice& block, bool recompute, bool cache, BackwardWhere where) {
  block->set_recompute(recompute);
  block->zero_grad();
  block->seen.clear();
  block->cached.clear();
  at::manual_seed(3);
  const Tensor x = at::rand({3, 4}).requires_grad_(true);
  Tensor loss;
  {
    const Region region(at::kBFloat16, cache);
    loss = block(x).pow(2).sum();
    if (where == BackwardWhere::inside) loss.backward();
  }
  if (where == BackwardWhere::outside) loss.backward();
  std::vector<Tensor> results{loss.detach(), x.grad()};
  for (const Tensor& parameter : block->parameters()) results.push_back(parameter.grad().clone());
  return results;
}

TEST(ReplayState, AutocastIsAsItWasInTheFirstPass) {
  Twice block;
  for (const bool cache : {true, false}) {
    for (const auto where : {BackwardWhere::inside, BackwardWhere::outside}) {
      const auto plain = train_replayed(block, false, cache, where);
      const auto recomputed = train_replayed(block, true, cache, where);
      const std::vector<std::optional<at::ScalarType>> twice(2, at::kBFloat16);
      EXPECT_EQ(block->seen, twice);
      EXPECT_EQ(block->cached, (std::vector<bool>{false, cache}));
      ASSERT_EQ(plain.size(), recomputed.size());
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(at::equal(plain[i], recomputed[i])) << i << " cache " << cache;
      }
      EXPECT_FALSE(autocast::is_autocast_enabled(at::kCPU));
      EXPECT_TRUE(autocast::is_autocast_cache_enabled());
    }
  }
}

TEST(ReplayState, AutocastAroundBackwardOnlyDoesNotReachTheReplay) {
  Twice block;
  block->set_recompute(true);
  const Tensor x = at::rand({3, 4}).requires_grad_(true);
  const Tensor loss = block(x).sum();
  const Region region(at::kBFloat16);
  loss.backward();
  const std::vector<std::optional<at::ScalarType>> never(2);
  EXPECT_EQ(block->seen, never);
  EXPECT_TRUE(autocast::is_autocast_enabled(at::kCPU));
}

// The first pass runs without gradients; a cast that it left in the cache would have none either.
TEST(ReplayState, ACastOfTheFirstPassIsNotFoundByCodeAfterIt) {
  Twice block;
  block->set_recompute(true);
  const Region region(at::kBFloat16);
  const Tensor y = block(at::rand({3, 4}));
  const Tensor tied = at::linear(at::rand({3, 4}), block->linear->weight);
  EXPECT_TRUE(tied.requires_grad());
}

TEST(ReplayState, RandomStateComesBackAfterItsScope) {
  const std::vector<at::Device> cpu{at::Device(at::kCPU)};
  at::manual_seed(1);
  const auto first = RandomState::now(cpu);
  const Tensor drawn = at::rand({3});
  const auto second = RandomState::now(cpu);
  EXPECT_FALSE(first == second);
  {
    const RandomStateScope scope(first);
    EXPECT_TRUE(at::equal(at::rand({3}), drawn));
  }
  EXPECT_TRUE(second == RandomState::now(cpu));
}

}  // namespace
}  // namespace fullshard::nn
