// SPDX-License-Identifier: Apache-2.0
// A small model with everything that loading and saving must get right: uneven sizes, a tied and a
// frozen parameter, nested units, buffers and an ignored module; and files of its values in memory.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/deferred.h"
#include "fullshard/nn/unit.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard::testing {

struct SmallBlockImpl : Unit {
  SmallBlockImpl() {
    up = register_module("up", Linear(5, 7));
    down = register_module("down", Linear(7, 5));
    gate = register_parameter("gate", at::ones({5}), /*requires_grad=*/false);
  }
  at::Tensor forward(at::Tensor x) { return x + down(up(x).tanh()) * gate; }
  Linear up{nullptr}, down{nullptr};
  at::Tensor gate;
};
FULLSHARD_UNIT(SmallBlock);

struct TiedHead : torch::nn::Module {
  explicit TiedHead(const at::Tensor& weight) { register_parameter("weight", weight); }
};

struct SmallModelImpl : Unit {
  SmallModelImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(11, 5));
    for (int i = 0; i < 2; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), SmallBlock()));
    }
    aside = register_module("aside", torch::nn::Linear(5, 5));
    head = embedding->weight;
    register_module("head", std::make_shared<TiedHead>(head));
    scale = register_buffer("scale", at::ones({5}));
    const RealScope real;
    table = register_buffer("table", at::arange(5).to(at::kFloat));
  }

  at::Tensor forward(at::Tensor ids) {
    auto x = embedding(ids) * scale.to(embedding->weight.scalar_type());
    for (auto& block : blocks) x = block(x);
    x = x + aside(x.to(aside->weight.scalar_type())).to(x.scalar_type()) * 0.1;
    const auto logits = at::linear(x, head).to(at::kFloat);
    return at::cross_entropy_loss(logits.flatten(0, 1), ids.flatten());
  }

  torch::nn::Embedding embedding{nullptr};
  std::vector<SmallBlock> blocks;
  torch::nn::Linear aside{nullptr};
  at::Tensor head, scale, table;
};
FULLSHARD_UNIT(SmallModel);

using Values = std::map<std::string, at::Tensor>;

// What a file of the model holds: every parameter once, and the buffer `scale`.
inline Values small_values(uint64_t seed = 5) {
  Values values;
  auto generator = at::detail::createCPUGenerator(seed);
  const SmallModel model;
  for (const auto& item : model->named_parameters()) {
    if (item.key() == "head.weight") continue;
    values[item.key()] = at::empty_like(item.value().detach()).normal_(0.0, 0.5, generator);
  }
  values["scale"] = at::empty({5}).normal_(1.0, 0.1, generator);
  return values;
}

inline at::Tensor small_batch(int step, int rank) {
  auto generator = at::detail::createCPUGenerator(1000 + 10 * step + rank);
  return at::randint(11, {2, 4}, generator, at::kLong);
}

// One way to shard, with a name for messages.
struct Way {
  std::string name;
  int ranks;
  ShardOptions options;
};

// All strategies on 1, 2, 3 and 4 ranks, with and without a shared copy; `aside` is ignored.
std::vector<Way> all_ways();
Way in_bf16(Way way);  // with fp32 masters

// What the module shows when it is gathered, buffers too. Collective.
Values whole_values(SmallModel& model, ShardedModel& sharded);
// This rank's masters by "name[begin:end]".
Values master_values(const ShardedModel& sharded);

}  // namespace fullshard::testing
