// SPDX-License-Identifier: Apache-2.0
// A model whose graph differs between ranks and steps: a layer that is left out, a unit that hands
// its input on, an output that nobody uses.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"

namespace fullshard::testing {

inline constexpr int kBranchWidth = 8;

// What a block does with its input on one rank, in one micro-batch.
enum class Branch { everything, without_expert, drop, unused, detached, constant };
inline constexpr int kNumBranches = 6;

struct ExpertImpl : Unit {
  ExpertImpl() {
    linear = register_module("linear", torch::nn::Linear(kBranchWidth, kBranchWidth));
  }
  at::Tensor forward(at::Tensor x) { return linear(x).tanh(); }
  torch::nn::Linear linear{nullptr};
};
FULLSHARD_UNIT(Expert);

// With an optional layer of its own, and with a unit inside whose output may stay unused.
struct BranchBlockImpl : Unit {
  explicit BranchBlockImpl(bool has_nested) {
    always = register_module("always", torch::nn::Linear(kBranchWidth, kBranchWidth));
    expert = register_module("expert", torch::nn::Linear(kBranchWidth, kBranchWidth));
    if (has_nested) nested = register_module("nested", Expert());
  }
  at::Tensor forward(at::Tensor x, Branch branch) {
    // Every rank calls every unit: what it does with the result is its own affair.
    const auto inner = nested ? nested(x) : at::Tensor();
    switch (branch) {
      case Branch::drop:
        return x;
      case Branch::constant:
        return x.detach() + 1;
      case Branch::detached:
        return x + always(x).detach();
      case Branch::without_expert:
        return x + always(x);
      default:
        // Halved, so that a deep stack does not saturate: devices would differ in more than bits.
        return 0.5 * (x + always(x) + expert(x) + (nested ? inner : x));
    }
  }
  torch::nn::Linear always{nullptr}, expert{nullptr};
  Expert nested{nullptr};
};
FULLSHARD_UNIT(BranchBlock);

struct BranchesImpl : Unit {
  BranchesImpl(int num_blocks, uint64_t nested_mask) {
    first = register_module("first", torch::nn::Linear(kBranchWidth, kBranchWidth));
    for (int i = 0; i < num_blocks; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i), BranchBlock((nested_mask >> i & 1) != 0)));
    }
  }
  at::Tensor forward(at::Tensor x, const std::vector<Branch>& branches) {
    x = first(x);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto y = blocks[i](x, branches[i]);
      if (branches[i] != Branch::unused) x = y;
    }
    return x.tanh() + first->bias;  // so that a backward always begins
  }
  torch::nn::Linear first{nullptr};
  std::vector<BranchBlock> blocks;
};
FULLSHARD_UNIT(Branches);

struct BranchCase {
  int num_blocks = 6;
  int ranks = 2;
  int stage = 3;
  int factor = 0;
  std::string backend = "shm";
  bool share = false;
  BackwardPrefetch prefetch = BackwardPrefetch::pre;
  bool reshard = true;
  bool overlap = true;
  int micro_batches = 1;
  bool no_sync = false;
  uint64_t nested_mask = 0;
  uint64_t recompute_mask = 0;
  uint64_t seed = 0;

  std::string text() const {
    return fmt::format(
        "seed {}: {} blocks, {} ranks over {}, stage {}, factor {}, share {}, prefetch {}, "
        "reshard {}, overlap {}, {} micro-batches, no_sync {}, nested {:b}, recomputed {:b}",
        seed, num_blocks, ranks, backend, stage, factor, share, static_cast<int>(prefetch), reshard,
        overlap, micro_batches, no_sync, nested_mask, recompute_mask);
  }
};

Branches build_branches(const BranchCase& spec);
ShardOptions branch_options(const BranchCase& spec);
BranchCase draw_case(uint64_t seed, const std::string& backend);

using WholeGradients = std::map<std::string, at::Tensor>;

// Without the engine: the mean over the losses of all ranks.
WholeGradients gradients_without_engine(const BranchCase& spec, int step);
// Trains a few steps; empty when every gradient of this rank's pieces is as expected, else which
// is not. Collective.
std::string differing_gradients(const BranchCase& spec, const World& world);
// Of this rank's pieces.
std::string differing_pieces(const ShardedModel& sharded, const WholeGradients& expected);

}  // namespace fullshard::testing
