// SPDX-License-Identifier: Apache-2.0
// Random trees of modules, shapes, dtypes, frozen flags, ties, wrap policies and worlds: gradients
// equal those of the same model without the engine. A failure prints the seed that repeats it.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <random>

#include "fullshard/engine/engine.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"

namespace fullshard {
namespace {

// What one node of a random model is made of; drawn once, built several times.
struct NodeSpec {
  struct Parameter {
    std::vector<int64_t> shape;
    at::ScalarType dtype = at::kFloat;
    bool frozen = false;
    int tied_to = -1;  // index among all parameters drawn so far
  };
  std::vector<Parameter> parameters;
  std::vector<NodeSpec> children;
  bool called_twice = false;
  bool recompute = false;
  bool passes_input = false;  // returns its input beside its output
};

struct CaseSpec {
  NodeSpec root;
  int ranks = 1;
  int stage = 3;
  int factor = 1;
  bool share = true;
  bool reshard = true;
  bool forward_prefetch = false;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::none;
  int wrap = 0;
  int64_t persistence = 0;
  int64_t bucket = 0;
  bool contiguous = true;
  bool round_robin = false;
};

struct NodeImpl : Unit {
  NodeImpl(const NodeSpec& node, std::vector<at::Tensor>& all, const at::Generator& generator)
      : spec(node) {
    for (const auto& drawn : spec.parameters) {
      at::Tensor tensor;
      if (drawn.tied_to >= 0) {
        tensor = all[drawn.tied_to];
      } else {
        tensor = at::randn(drawn.shape, generator, at::TensorOptions().dtype(drawn.dtype));
        tensor.set_requires_grad(!drawn.frozen);
      }
      all.push_back(tensor);
      own.push_back(
          register_parameter("p" + std::to_string(own.size()), tensor, tensor.requires_grad()));
    }
    for (const auto& child : spec.children) {
      nested.push_back(register_module("c" + std::to_string(nested.size()),
                                       std::make_shared<Around<NodeImpl>>(child, all, generator)));
    }
    set_recompute(spec.recompute);
  }

  // A scalar stream: every parameter mixes into it in its own dtype.
  std::tuple<at::Tensor, at::Tensor> forward(at::Tensor x) {
    auto y = x;
    for (const auto& parameter : own) {
      y = y + (parameter * y.mean().to(parameter.scalar_type())).tanh().sum().to(at::kDouble);
    }
    for (const auto& child : nested) y = run(*child, y);
    return {y.tanh(), spec.passes_input ? x : y};
  }

  static at::Tensor run(Around<NodeImpl>& child, at::Tensor y) {
    for (int i = 0; i < (child.spec.called_twice ? 2 : 1); ++i) {
      auto [first, second] = child.forward(y);
      y = first + 0.5 * second;
    }
    return y;
  }

  NodeSpec spec;
  std::vector<at::Tensor> own;
  std::vector<std::shared_ptr<Around<NodeImpl>>> nested;
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  CaseSpec case_spec() {
    CaseSpec spec;
    spec.root = node(0);
    spec.ranks = number(1, 4);
    spec.stage = number(0, 3);
    std::vector<int> divisors;
    for (int i = 1; i <= spec.ranks; ++i) {
      if (spec.ranks % i == 0) divisors.push_back(i);
    }
    spec.factor = spec.stage == 0 ? 1 : divisors[number(0, static_cast<int>(divisors.size()) - 1)];
    spec.share = chance(2);
    spec.reshard = chance(2);
    spec.forward_prefetch = chance(2);
    spec.backward_prefetch = static_cast<BackwardPrefetch>(number(0, 2));
    spec.wrap = number(0, 3);
    spec.persistence = chance(4) ? number(1, 20) : 0;
    spec.bucket = chance(4) ? number(1, 40) : 0;
    spec.contiguous = !chance(4);
    spec.round_robin = chance(4);
    return spec;
  }

 private:
  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int one_in) { return number(1, one_in) == 1; }

  NodeSpec node(int depth) {
    NodeSpec spec;
    const int num_parameters = number(depth == 0 ? 1 : 0, 3);
    for (int i = 0; i < num_parameters; ++i) spec.parameters.push_back(parameter());
    const int num_children = depth < 3 ? number(0, 3 - depth) : 0;
    for (int i = 0; i < num_children; ++i) spec.children.push_back(node(depth + 1));
    spec.called_twice = chance(4);
    spec.recompute = chance(4);
    spec.passes_input = chance(3);
    return spec;
  }

  NodeSpec::Parameter parameter() {
    NodeSpec::Parameter drawn;
    for (int dims = number(0, 3); dims > 0; --dims) drawn.shape.push_back(number(1, 7));
    drawn.dtype = chance(4) ? at::kDouble : at::kFloat;
    drawn.frozen = chance(5);
    if (num_drawn_ > 0 && chance(6)) drawn.tied_to = number(0, num_drawn_ - 1);
    ++num_drawn_;
    return drawn;
  }

  std::mt19937_64 random_;
  int num_drawn_ = 0;
};

std::string describe(const NodeSpec& node, int depth = 1) {
  std::string text =
      fmt::format("{:{}}{}{}{}", "", 2 * depth, node.called_twice ? "twice " : "",
                  node.recompute ? "recomputed " : "", node.passes_input ? "passes input " : "");
  for (const auto& parameter : node.parameters) {
    text +=
        fmt::format("{}[{}]{}{} ", c10::toString(parameter.dtype), fmt::join(parameter.shape, ","),
                    parameter.frozen ? " frozen" : "",
                    parameter.tied_to >= 0 ? fmt::format(" tied to {}", parameter.tied_to) : "");
  }
  text += "\n";
  for (const auto& child : node.children) text += describe(child, depth + 1);
  return text;
}

std::string describe(const CaseSpec& spec) {
  return fmt::format(
      "{} ranks, stage {}, factor {}, share {}, reshard {}, prefetch {} {}, wrap {}, persistence "
      "{}, "
      "bucket {}, contiguous {}, round robin {}\n{}",
      spec.ranks, spec.stage, spec.factor, spec.share, spec.reshard, spec.forward_prefetch,
      static_cast<int>(spec.backward_prefetch), spec.wrap, spec.persistence, spec.bucket,
      spec.contiguous, spec.round_robin, describe(spec.root));
}

std::shared_ptr<Around<NodeImpl>> build(const CaseSpec& spec, uint64_t seed) {
  std::vector<at::Tensor> all;
  return std::make_shared<Around<NodeImpl>>(spec.root, all, at::detail::createCPUGenerator(seed));
}

at::Tensor loss_of(Around<NodeImpl>& model, int rank) {
  const auto x = at::full({2}, 0.1 * (rank + 1), at::kDouble);
  auto [first, second] = model.forward(x);
  return (first * second).sum();
}

ShardOptions random_options(const CaseSpec& spec) {
  ShardOptions options;
  options.sharding.zero_stage = spec.stage;
  options.sharding.sharding_factor = spec.factor;
  options.sharding.reshard_after_forward = spec.reshard;
  options.share_host_copy = spec.share;
  options.schedule.forward_prefetch = spec.forward_prefetch;
  options.schedule.backward_prefetch = spec.backward_prefetch;
  options.param_persistence_threshold = spec.persistence;
  options.traffic.allgather_bucket_size = spec.bucket;
  options.traffic.reduce_bucket_size = spec.bucket;
  options.contiguous_gradients = spec.contiguous;
  options.round_robin_gradients = spec.round_robin;
  switch (spec.wrap) {
    case 0:
      options.wrap = WrapPolicy::marked();
      break;
    case 1:
      options.wrap = WrapPolicy::none();
      break;
    case 2:
      options.wrap = WrapPolicy::min_size(20);
      break;
    default:
      options.wrap = WrapPolicy::predicate(
          [](const WrapCandidate& candidate) { return candidate.path.size() % 4 == 2; });
  }
  return options;
}

std::map<std::string, at::Tensor> plain_gradients(const CaseSpec& spec, uint64_t seed) {
  auto model = build(spec, seed);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    auto loss = loss_of(*model, rank);
    if (loss.requires_grad()) (loss / spec.ranks).backward();
  }
  std::map<std::string, at::Tensor> gradients;
  for (const auto& item : model->named_parameters()) {
    if (item.value().requires_grad()) gradients[item.key()] = item.value().grad();
  }
  return gradients;
}

void check_pieces(const ShardedModel& sharded, const std::map<std::string, at::Tensor>& expected) {
  for (const auto& piece : sharded.pieces()) {
    ASSERT_TRUE(piece.gradient.defined()) << piece.name;
    const auto& whole = expected.at(piece.name);
    const auto part = whole.defined() ? whole.flatten().narrow(0, piece.begin, piece.numel())
                                      : at::zeros({piece.numel()}, piece.gradient.options());
    EXPECT_TRUE(at::allclose(piece.gradient, part.to(piece.gradient.scalar_type()), 1e-4, 1e-5))
        << piece.name << ": " << piece.gradient << " against " << part;
  }
}

void check_seed(uint64_t seed) {
  const auto spec = Draw(seed).case_spec();
  const auto expected = plain_gradients(spec, seed);
  if (expected.empty()) return;
  run_ranks({.ranks = spec.ranks}, [&](const World& world) {
    auto model = build(spec, seed);
    auto sharded = shard(model, world, random_options(spec));
    for (int repeat = 0; repeat < 2; ++repeat) {
      auto loss = loss_of(*model, world.rank());
      loss.backward();
      check_pieces(sharded, expected);
      EXPECT_EQ(sharded.counters().live_numel, 0);
      sharded.zero_grad();
      EXPECT_EQ(sharded.ledger().held(tiers::Purpose::gradients), 0);
    }
  });
}

// FULLSHARD_SEED=n repeats one case.
TEST(Property, GradientsOfRandomModelsEqualTheUnshardedOnes) {
  if (const char* only = std::getenv("FULLSHARD_SEED")) {
    check_seed(std::strtoull(only, nullptr, 10));
    return;
  }
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    check_seed(seed);
    if (HasFailure()) {
      FAIL() << "repeat with FULLSHARD_SEED=" << seed << "\n" << describe(Draw(seed).case_spec());
    }
  }
}

}  // namespace
}  // namespace fullshard
