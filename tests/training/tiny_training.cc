// SPDX-License-Identifier: Apache-2.0
#include "tests/training/tiny_training.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <optional>

#include "fullshard/optim/adamw.h"
#include "fullshard/optim/kernels/adamw_kernels.h"

namespace fullshard::testing {
namespace {

constexpr AdamWOptions kAdamW{.lr = 1e-2, .weight_decay = 0.1};

struct PlainAdamW {
  at::Tensor moment, variance;
};

double global_norm(const std::vector<at::Tensor>& gradients) {
  double total = 0;
  for (const auto& gradient : gradients) {
    const auto wide = gradient.to(at::kDouble).flatten();
    total += wide.dot(wide).item<double>();
  }
  return std::sqrt(total);
}

optim::AdamWStep constants_of_step(int step, double clip) {
  optim::AdamWStep constants;
  constants.clip = clip;
  constants.beta1 = kAdamW.beta1;
  constants.beta2 = kAdamW.beta2;
  constants.decay = 1 - kAdamW.lr * kAdamW.weight_decay;
  constants.step_size = kAdamW.lr / (1 - std::pow(kAdamW.beta1, step));
  constants.root_correction = std::sqrt(1 - std::pow(kAdamW.beta2, step));
  constants.epsilon = kAdamW.epsilon;
  return constants;
}

void collect(torch::nn::Module& module, Outcome& outcome) {
  for (const auto& item : module.named_parameters()) {
    outcome.parameters[item.key()] = item.value().detach().cpu().clone();
  }
}

}  // namespace

TinyTransformer make_model(const TrainingOptions& options) {
  TinyTransformer model(options.model);
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(options.seed);
  for (auto& parameter : model->parameters()) parameter.normal_(0.0, 0.3, generator);
  return model;
}

at::Tensor make_batch(const TrainingOptions& options, int step, int micro_batch, int rank) {
  const auto key = options.seed * 1'000'003 + step * 10'007 + micro_batch * 101 + rank;
  auto generator = at::detail::createCPUGenerator(key);
  return at::randint(options.model.vocabulary, {2, 5}, generator, at::kLong);
}

Outcome train_unsharded(const TrainingOptions& options, int world_size) {
  auto model = make_model(options);
  auto parameters = model->parameters();
  std::vector<PlainAdamW> states;
  for (const auto& p : parameters) states.push_back({at::zeros_like(p), at::zeros_like(p)});
  Outcome outcome;
  for (int step = 0; step < options.steps; ++step) {
    for (int micro = 0; micro < options.micro_batches; ++micro) {
      for (int rank = 0; rank < world_size; ++rank) {
        const auto loss = model(make_batch(options, step, micro, rank));
        if (rank == 0 && micro == 0) outcome.losses.push_back(loss.item<double>());
        (loss / world_size).backward();
      }
    }
    std::vector<at::Tensor> gradients;
    for (auto& p : parameters) gradients.push_back(p.grad());
    const double norm = global_norm(gradients);
    outcome.norms.push_back(norm);
    const double clip = options.clip > 0 ? std::min(1.0, options.clip / (norm + 1e-6)) : 1.0;
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      optim::adamw_step(constants_of_step(step + 1, clip), parameters[i].data_ptr<float>(),
                        gradients[i].contiguous().const_data_ptr<float>(),
                        states[i].moment.data_ptr<float>(), states[i].variance.data_ptr<float>(),
                        parameters[i].numel());
      parameters[i].mutable_grad() = at::Tensor();
    }
  }
  collect(*model, outcome);
  return outcome;
}

Outcome train_sharded(const World& world, const ShardOptions& shard_options,
                      const TrainingOptions& options) {
  auto model = make_model(options);
  for (auto& block : model->blocks) block->set_recompute(options.recompute);
  auto sharded = shard(model, world, shard_options);
  AdamW optimizer(sharded, kAdamW);
  Outcome outcome;
  for (int step = 0; step < options.steps; ++step) {
    for (int micro = 0; micro < options.micro_batches; ++micro) {
      std::optional<NoSync> no_sync;
      if (options.no_sync && micro + 1 < options.micro_batches) no_sync.emplace(sharded.no_sync());
      auto loss = model(make_batch(options, step, micro, world.rank()).to(world.device()));
      if (micro == 0) outcome.losses.push_back(loss.item<double>());
      loss.backward();
    }
    if (options.clip > 0) outcome.norms.push_back(sharded.clip_grad_norm(options.clip));
    optimizer.step();
    optimizer.zero_grad();
  }
  auto full = sharded.gather_full();
  collect(*model, outcome);
  return outcome;
}

Outcome train_on_threads(const ThreadRanks& ranks, const ShardOptions& shard_options,
                         const TrainingOptions& options) {
  Outcome outcome;
  run_ranks(ranks, [&](const World& world) {
    auto own = train_sharded(world, shard_options, options);
    if (world.rank() == 0) outcome = std::move(own);
  });
  return outcome;
}

}  // namespace fullshard::testing
