// SPDX-License-Identifier: Apache-2.0
#include "tests/training/branch_model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <random>

namespace fullshard::testing {

Branches build_branches(const BranchCase& spec) {
  Branches model(spec.num_blocks, spec.nested_mask);
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(5);
  for (auto& parameter : model->parameters()) parameter.normal_(0.0, 0.3, generator);
  for (size_t i = 0; i < model->blocks.size(); ++i) {
    model->blocks[i]->set_recompute((spec.recompute_mask >> i & 1) != 0);
  }
  return model;
}

namespace {

// Of one rank, step and micro-batch.
at::Tensor branch_loss(Branches& model, const BranchCase& spec, int step, int micro_batch, int rank,
                       at::Device device = at::kCPU) {
  std::mt19937_64 random(spec.seed * 1000 + step * 100 + micro_batch * 10 + rank);
  std::vector<Branch> branches;
  for (int i = 0; i < spec.num_blocks; ++i) {
    branches.push_back(static_cast<Branch>(random() % kNumBranches));
  }
  auto generator = at::detail::createCPUGenerator(random());
  return model(at::randn({3, kBranchWidth}, generator).to(device), branches).pow(2).sum();
}

}  // namespace

WholeGradients gradients_without_engine(const BranchCase& spec, int step) {
  auto model = build_branches(spec);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    for (int micro = 0; micro < spec.micro_batches; ++micro) {
      (branch_loss(model, spec, step, micro, rank) / spec.ranks).backward();
    }
  }
  WholeGradients gradients;
  for (const auto& item : model->named_parameters()) {
    const auto& gradient = item.value().grad();
    gradients[item.key()] = gradient.defined() ? gradient : at::zeros_like(item.value());
  }
  return gradients;
}

ShardOptions branch_options(const BranchCase& spec) {
  ShardOptions options;
  options.sharding.zero_stage = spec.stage;
  if (spec.factor > 0) options.sharding.sharding_factor = spec.factor;
  options.sharding.reshard_after_forward = spec.reshard;
  options.share_host_copy = spec.share;
  options.schedule.backward_prefetch = spec.prefetch;
  options.schedule.overlap_comm = spec.overlap;
  return options;
}

namespace {

// The first micro-batches of a step without reduction, or all of them with it.
void accumulate_branches(Branches& model, ShardedModel& sharded, const BranchCase& spec, int step,
                         const World& world) {
  for (int micro = 0; micro < spec.micro_batches; ++micro) {
    const bool defers = spec.no_sync && micro + 1 < spec.micro_batches;
    auto loss = branch_loss(model, spec, step, micro, world.rank(), world.device());
    if (defers) {
      const auto scope = sharded.no_sync();
      loss.backward();
    } else {
      loss.backward();
    }
  }
}

}  // namespace

std::string differing_pieces(const ShardedModel& sharded, const WholeGradients& expected) {
  std::string differing;
  for (const auto& piece : sharded.pieces()) {
    if (piece.numel() == 0) continue;
    const auto& whole = expected.at(piece.name);
    const auto part = whole.flatten().narrow(0, piece.begin, piece.numel());
    if (!piece.gradient.defined()) {
      differing += piece.name + " has none ";
      continue;
    }
    // Devices and orders of summation differ in the last bits of the largest terms.
    const auto worst = (piece.gradient.cpu() - part).abs().max().item<double>();
    const auto largest = whole.abs().max().item<double>();
    if (!(worst <= 1e-4 * largest + 1e-6)) {
      differing += fmt::format("{} by {:.1e} of {:.1e} ", piece.name, worst, largest);
    }
  }
  return differing;
}

std::string differing_gradients(const BranchCase& spec, const World& world) {
  constexpr int kSteps = 3;
  auto model = build_branches(spec);
  auto sharded = shard(model, world, branch_options(spec));
  std::string differing;
  for (int step = 0; step < kSteps; ++step) {
    accumulate_branches(model, sharded, spec, step, world);
    const auto found = differing_pieces(sharded, gradients_without_engine(spec, step));
    if (!found.empty()) differing += fmt::format("step {}: {}\n", step, found);
    if (sharded.counters().live_numel != 0) differing += "a unit is still gathered\n";
    sharded.zero_grad();
  }
  return differing;
}

BranchCase draw_case(uint64_t seed, const std::string& backend) {
  std::mt19937_64 random(seed);
  BranchCase spec;
  spec.seed = seed;
  spec.backend = backend;
  spec.ranks = 2 + static_cast<int>(random() % 3);
  spec.num_blocks = 6 + static_cast<int>(random() % 3);
  spec.stage = random() % 3 == 0 ? static_cast<int>(random() % 3) : 3;
  if (spec.ranks == 4 && spec.stage > 0 && random() % 3 == 0) spec.factor = 2;
  spec.share = backend == "shm" && random() % 4 == 0;
  spec.prefetch = static_cast<BackwardPrefetch>(random() % 3);
  spec.reshard = random() % 4 != 0;
  spec.overlap = random() % 4 != 0;
  spec.micro_batches = 1 + static_cast<int>(random() % 2);
  spec.no_sync = random() % 2 == 0;
  spec.nested_mask = random() % 2 == 0 ? random() : 0;
  spec.recompute_mask = random() % 2 == 0 ? random() : 0;
  return spec;
}

}  // namespace fullshard::testing
