// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/recompute_policy.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "expect_error.h"
#include "fullshard/nn/unit.h"

namespace fullshard::nn {
namespace {

struct LeafImpl : Unit {
  LeafImpl() { linear = register_module("linear", torch::nn::Linear(2, 2)); }
  at::Tensor forward(at::Tensor x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
};
FULLSHARD_UNIT(Leaf);

struct TwoLeavesImpl : Unit {
  TwoLeavesImpl() {
    first = register_module("first", Leaf());
    second = register_module("second", Wrap<torch::nn::Linear>(2, 2));
  }
  at::Tensor forward(at::Tensor x) { return second(first(x)); }
  Leaf first{nullptr};
  Wrap<torch::nn::Linear> second{nullptr};
};
FULLSHARD_UNIT(TwoLeaves);

struct TwoBlocksImpl : Unit {
  TwoBlocksImpl() {
    a = register_module("a", TwoLeaves());
    b = register_module("b", TwoLeaves());
    head = register_module("head", Leaf());
  }
  at::Tensor forward(at::Tensor x) { return head(b(a(x))); }
  TwoLeaves a{nullptr}, b{nullptr};
  Leaf head{nullptr};
};
FULLSHARD_UNIT(TwoBlocks);

using Paths = std::vector<std::string>;

// The modules that are switched on.
Paths recomputed(TwoBlocks& net) {
  Paths paths;
  for (const auto& item : net->named_modules()) {
    const auto* unit = dynamic_cast<const UnitState*>(item.value().get());
    if (unit != nullptr && unit->recompute()) paths.push_back(item.key());
  }
  return paths;
}

TEST(RecomputePolicy, NoneChangesNothing) {
  TwoBlocks net;
  net->a->set_recompute(true);
  EXPECT_EQ(recompute_units(*net, RecomputePolicy::none()), 0);
  EXPECT_EQ(recomputed(net), (Paths{"a"}));
}

TEST(RecomputePolicy, AllMeansTheOutermostUnitsBelowTheRoot) {
  TwoBlocks net;
  EXPECT_EQ(recompute_units(*net, RecomputePolicy::all()), 3);
  EXPECT_EQ(recomputed(net), (Paths{"a", "b", "head"}));
}

TEST(RecomputePolicy, AllLeavesOutEmbeddingAndHead) {
  TwoBlocks net;
  net->a->set_vocabulary_part(VocabularyPart::embedding);
  net->head->set_vocabulary_part(VocabularyPart::head);
  // What lies below them is asked as before.
  EXPECT_EQ(recompute_units(*net, RecomputePolicy::all()), 3);
  EXPECT_EQ(recomputed(net), (Paths{"a.first", "a.second", "b"}));
  EXPECT_EQ(recompute_units(*net, RecomputePolicy::classes({"TwoLeaves"})), 2);
}

TEST(RecomputePolicy, ClassesAreFoundHoweverDeepAndWrappedOnesToo) {
  TwoBlocks net;
  EXPECT_EQ(recompute_units(*net, RecomputePolicy::classes({"Leaf"})), 3);
  EXPECT_EQ(recomputed(net), (Paths{"a.first", "b.first", "head"}));
  TwoBlocks other;
  EXPECT_EQ(recompute_units(*other->a, RecomputePolicy::classes({"TwoLeaves", "Leaf"})), 2);
  EXPECT_EQ(recomputed(other), (Paths{"a", "a.first"}));
}

TEST(RecomputePolicy, APredicateSeesPathAndClass) {
  TwoBlocks net;
  const auto policy = RecomputePolicy::predicate([](const RecomputeCandidate& candidate) {
    return candidate.class_name == "Linear" && candidate.path == "b.second";
  });
  EXPECT_EQ(recompute_units(*net, policy), 1);
  EXPECT_EQ(recomputed(net), (Paths{"b.second"}));
}

TEST(RecomputePolicy, AnUnknownClassIsAnErrorThatListsThoseThereAre) {
  TwoBlocks net;
  EXPECT_EQ(
      error_of([&] {
        recompute_units(*net, RecomputePolicy::classes({"Leaf", "Blok"}));
      }),
      "recompute: no module of class 'Blok'; the model has Leaf, Linear, TwoBlocks, TwoLeaves");
  EXPECT_EQ(recomputed(net), Paths());
}

TEST(RecomputePolicy, AClassThatIsNoUnitIsAnErrorThatSaysHowToMakeItOne) {
  Leaf leaf;
  EXPECT_EQ(error_of([&] { recompute_units(*leaf, RecomputePolicy::classes({"Linear"})); }),
            "recompute: module 'linear' of class Linear is no unit; hold it as "
            "fullshard::Wrap<torch::nn::Linear>");
}

}  // namespace
}  // namespace fullshard::nn
