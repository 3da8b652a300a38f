// SPDX-License-Identifier: Apache-2.0
#include "tests/training/varying_units.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>

#include <cmath>
#include <utility>
#include <vector>

#include "fullshard/nn/unit.h"
#include "fullshard/optim/adamw.h"

namespace fullshard::testing {
namespace {

constexpr int64_t kVaryingWidth = 24;
constexpr int kVaryingBlocks = 10;

struct VaryingBlockImpl : Unit {
  VaryingBlockImpl() {
    weight = register_parameter("weight", at::zeros({kVaryingWidth, kVaryingWidth}));
  }
  at::Tensor forward(at::Tensor x) { return x + at::tanh(at::matmul(x, weight)); }
  at::Tensor weight;
};
FULLSHARD_UNIT(VaryingBlock);

struct VaryingModelImpl : Unit {
  VaryingModelImpl() {
    scale = register_parameter("scale", at::zeros({kVaryingWidth}));
    for (int i = 0; i < kVaryingBlocks; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), VaryingBlock()));
    }
  }
  at::Tensor forward(at::Tensor x, const std::function<bool(int)>& takes_part) {
    x = x * scale;
    for (int i = 0; i < kVaryingBlocks; ++i) {
      if (takes_part(i)) x = blocks[static_cast<size_t>(i)](x);
    }
    return x.square().mean();
  }
  at::Tensor scale;
  std::vector<VaryingBlock> blocks;
};
FULLSHARD_UNIT(VaryingModel);

// All, the last alone, or every third: in an order that windows cannot follow.
bool has_part(int step, int block) {
  if (step % 4 == 1) return block == kVaryingBlocks - 1;
  if (step % 4 == 3) return block % 3 == step % 3;
  return true;
}

}  // namespace

std::map<std::string, at::Tensor> train_varying_units(const World& world,
                                                      const ShardOptions& options,
                                                      const VaryingUnits& training) {
  VaryingModel model;
  {
    const at::NoGradGuard no_grad;
    auto generator = at::detail::createCPUGenerator(3);
    for (auto& parameter : model->parameters()) {
      parameter.copy_(at::randn(parameter.sizes(), generator) / std::sqrt(kVaryingWidth) + 0.1);
    }
  }
  auto sharded = shard(model, world, options);
  AdamW optimizer(sharded, {.lr = 1e-2, .weight_decay = 0.1});
  const auto compute = options.param_dtype.value_or(at::kFloat);
  for (int step = 0; step < training.steps; ++step) {
    for (int part = 0; part < training.micro_batches; ++part) {
      auto generator = at::detail::createCPUGenerator(
          static_cast<uint64_t>(100 + 10 * step + part + 1000 * world.rank()));
      const auto x = at::randn({6, kVaryingWidth}, generator).to(world.device(), compute);
      model(x, [step](int block) { return has_part(step, block); }).backward();
    }
    optimizer.clip_without_waiting(0.5);
    if (training.skips_a_step && step == 2) {
      sharded.zero_grad();
      continue;
    }
    optimizer.step();
    sharded.zero_grad();
  }
  std::map<std::string, at::Tensor> values;
  auto full = sharded.gather_full();
  for (const auto& item : model->named_parameters()) {
    values[item.key()] = item.value().detach().cpu().clone();
  }
  return values;
}

}  // namespace fullshard::testing
