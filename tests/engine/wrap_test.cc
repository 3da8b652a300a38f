// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/wrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "fullshard/base/error.h"
#include "fullshard/nn/unit.h"
#include "tests/errors.h"

namespace fullshard::engine {
namespace {

using fullshard::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct LeafImpl : Unit {
  LeafImpl() { linear = register_module("linear", torch::nn::Linear(4, 4)); }  // 20 parameters
  at::Tensor forward(at::Tensor x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
};
FULLSHARD_UNIT(Leaf);

struct BranchImpl : Unit {
  BranchImpl() {
    first = register_module("first", Leaf());
    second = register_module("second", Leaf());
    own = register_module("own", torch::nn::Linear(4, 2));  // 10
  }
  at::Tensor forward(at::Tensor x) { return own(second(first(x))); }
  Leaf first{nullptr}, second{nullptr};
  torch::nn::Linear own{nullptr};
};
FULLSHARD_UNIT(Branch);

struct RootImpl : Unit {
  RootImpl() {
    left = register_module("left", Branch());
    right = register_module("right", Branch());
    plain = register_module("plain", torch::nn::Linear(30, 10));  // 310
  }
  at::Tensor forward(at::Tensor x) { return left(x) + right(x); }
  Branch left{nullptr}, right{nullptr};
  torch::nn::Linear plain{nullptr};
};
FULLSHARD_UNIT(Root);

std::vector<std::string> paths(const WrapPlan& plan) {
  std::vector<std::string> result;
  for (const auto& unit : plan.units) result.push_back(unit.path);
  return result;
}

TEST(Wrap, TakesEveryMarkedModuleByDefault) {
  Root root;
  EXPECT_THAT(
      paths(plan_units(*root, WrapPolicy::marked(), "")),
      ElementsAre("", "left", "left.first", "left.second", "right", "right.first", "right.second"));
}

TEST(Wrap, TakesModulesByClassName) {
  Root root;
  const auto plan = plan_units(*root, WrapPolicy::classes({"Branch"}), "");
  EXPECT_THAT(paths(plan), ElementsAre("", "left", "right"));
  EXPECT_EQ(plan.units[1].numel(), 50);
  EXPECT_EQ(plan.units[0].numel(), 310);
  EXPECT_EQ(plan.units[1].parent, 0);
}

TEST(Wrap, AnUnknownClassListsThoseThatExist) {
  Root root;
  EXPECT_EQ(message_of([&] { plan_units(*root, WrapPolicy::classes({"GPT2Block"}), ""); }),
            "wrap: no module of class 'GPT2Block'; the model has Branch, Leaf, Linear, Root");
}

TEST(Wrap, AClassThatIsNoUnitIsExplained) {
  Root root;
  EXPECT_EQ(message_of([&] { plan_units(*root, WrapPolicy::classes({"Linear"}), ""); }),
            "wrap: module 'left.first.linear' of class Linear is no unit; hold it as "
            "fullshard::Wrap<torch::nn::Linear>");
}

TEST(Wrap, TakesModulesAtOrAboveASizeThatNestedUnitsDoNotHold) {
  Root root;
  // The leaves (20) are taken; what is left of a branch (10) is too small.
  EXPECT_THAT(paths(plan_units(*root, WrapPolicy::min_size(20), "")),
              ElementsAre("", "left.first", "left.second", "right.first", "right.second"));
  EXPECT_THAT(paths(plan_units(*root, WrapPolicy::min_size(21), "")),
              ElementsAre("", "left", "right"));
}

TEST(Wrap, WarnsAboutALargeModuleThatCannotBeWrapped) {
  Root root;
  const auto plan = plan_units(*root, WrapPolicy::min_size(300), "");
  ASSERT_THAT(plan.warnings, SizeIs(1));
  EXPECT_EQ(plan.warnings[0],
            "module 'plain' of class Linear has 310 parameters but is no unit, so it cannot be "
            "wrapped by size; hold it as fullshard::Wrap<torch::nn::Linear>");
}

struct VocabularyImpl : Unit {
  VocabularyImpl(int64_t tokens, int64_t block_width, bool tied) {
    table = register_module("table", Wrap<torch::nn::Embedding>(tokens, 8));
    table->set_vocabulary_part(nn::VocabularyPart::embedding);
    block = register_module("block", Wrap<torch::nn::Linear>(block_width, block_width));
    if (!tied) return;
    register_parameter("head", table->weight);
  }
  at::Tensor forward(at::Tensor x) { return block(table(x)); }
  Wrap<torch::nn::Embedding> table{nullptr};
  Wrap<torch::nn::Linear> block{nullptr};
};
FULLSHARD_UNIT(Vocabulary);

std::vector<std::string> vocabulary_units(int64_t tokens, int64_t block_width, bool tied,
                                          const WrapPolicy& policy,
                                          const std::string& ignored = "") {
  Vocabulary root(tokens, block_width, tied);
  return paths(plan_units(*root, policy, ignored));
}

TEST(Wrap, TakesAnEmbeddingOfAtLeastAMillionElements) {
  constexpr int64_t kTokens = kSmallestVocabularyUnit / 8;
  const auto marked = WrapPolicy::marked();
  EXPECT_THAT(vocabulary_units(kTokens, 8, false, marked), ElementsAre("", "table", "block"));
  EXPECT_THAT(vocabulary_units(kTokens - 1, 8, false, marked), ElementsAre("", "block"));
  EXPECT_THAT(vocabulary_units(kTokens, 8, false, marked, "table"), ElementsAre("", "block"));
}

TEST(Wrap, TakesAnEmbeddingAsLargeAsTheLargestUnit) {
  constexpr int64_t kWidth = 1031;  // block: 1031 * 1032 = 8 * 132999, more than a million
  const auto marked = WrapPolicy::marked();
  EXPECT_THAT(vocabulary_units(132'999, kWidth, false, marked), ElementsAre("", "table", "block"));
  EXPECT_THAT(vocabulary_units(132'998, kWidth, false, marked), ElementsAre("", "block"));
  EXPECT_THAT(vocabulary_units(132'999, kWidth, false, WrapPolicy::classes({"Linear"})),
              ElementsAre("", "table", "block"));
  EXPECT_THAT(vocabulary_units(132'998, kWidth, false, WrapPolicy::classes({"Linear"})),
              ElementsAre("", "block"));
}

TEST(Wrap, LeavesATiedEmbeddingToTheUnitAroundBothUsers) {
  EXPECT_THAT(vocabulary_units(kSmallestVocabularyUnit / 8, 8, true, WrapPolicy::marked()),
              ElementsAre("", "block"));
}

TEST(Wrap, PoliciesThatDecideThemselvesGetNoEmbeddingBeside) {
  constexpr int64_t kTokens = kSmallestVocabularyUnit / 8;
  EXPECT_THAT(vocabulary_units(kTokens, 8, false, WrapPolicy::none()), ElementsAre(""));
  EXPECT_THAT(vocabulary_units(kTokens, 8, false, WrapPolicy::min_size(kTokens * 8 + 1)),
              ElementsAre(""));
  EXPECT_THAT(vocabulary_units(kTokens, 8, false, WrapPolicy::min_size(kTokens * 8)),
              ElementsAre("", "table"));
  const auto never = WrapPolicy::predicate([](const WrapCandidate&) { return false; });
  EXPECT_THAT(vocabulary_units(kTokens, 8, false, never), ElementsAre(""));
  EXPECT_THAT(vocabulary_units(16, 8, false, WrapPolicy::classes({"Embedding"})),
              ElementsAre("", "table"));
}

struct ThreePlainImpl : Unit {
  ThreePlainImpl() {
    leaf = register_module("leaf", Leaf());
    for (const char* name : {"a", "b", "c"}) register_module(name, torch::nn::Linear(9, 10));
  }
  at::Tensor forward(at::Tensor x) { return leaf(x); }
  Leaf leaf{nullptr};
};
FULLSHARD_UNIT(ThreePlain);

TEST(Wrap, WarnsWhenOneUnitHoldsMoreThanHalf) {
  ThreePlain root;
  EXPECT_THAT(plan_units(*root, WrapPolicy::marked(), "").warnings,
              ElementsAre("the root unit holds 300 of 320 parameters: its full size is gathered at "
                          "once; make units of the modules below it to save memory"));
}

TEST(Wrap, DoesNotWarnWhereNothingCanBeDone) {
  Root root;  // 300 of its 410 parameters are one tensor
  EXPECT_THAT(plan_units(*root, WrapPolicy::marked(), "").warnings, SizeIs(0));
  ThreePlain advised;
  EXPECT_THAT(plan_units(*advised, WrapPolicy::marked(), "", /*advises=*/false).warnings,
              SizeIs(0));
  EXPECT_THAT(plan_units(*advised, WrapPolicy::min_size(50), "", /*advises=*/false).warnings,
              SizeIs(0));
}

// As a model looks when TORCH_MODULE was left where FULLSHARD_UNIT belongs.
struct ForgottenImpl : Unit {
  ForgottenImpl() { linear = register_module("linear", torch::nn::Linear(4, 4)); }
  at::Tensor forward(at::Tensor x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Forgotten);

struct HoldsForgottenImpl : Unit {
  HoldsForgottenImpl() { inner = register_module("inner", Forgotten()); }
  at::Tensor forward(at::Tensor x) { return inner(x); }
  Forgotten inner{nullptr};
};
FULLSHARD_UNIT(HoldsForgotten);

TEST(Wrap, AUnitWithoutItsHooksIsAnErrorWithTheLineToWrite) {
  const std::string rest =
      " of class Forgotten derives from fullshard::Unit, but its forward does not run the hooks "
      "that gather its parameters; write FULLSHARD_UNIT(Forgotten) in place of "
      "TORCH_MODULE(Forgotten), and make it as Forgotten(…), not with make_shared<ForgottenImpl>";
  for (const auto& policy : {WrapPolicy::marked(), WrapPolicy::none(), WrapPolicy::min_size(1)}) {
    HoldsForgotten root;
    EXPECT_EQ(message_of([&] { plan_units(*root, policy, ""); }), "shard: module 'inner'" + rest);
    Forgotten itself;
    EXPECT_EQ(message_of([&] { plan_units(*itself, policy, ""); }),
              "shard: module '(root)'" + rest);
    EXPECT_NO_THROW(plan_units(*root, policy, "inner"));
  }
}

TEST(Wrap, NoneMakesOneUnit) {
  Root root;
  const auto plan = plan_units(*root, WrapPolicy::none(), "");
  EXPECT_THAT(paths(plan), ElementsAre(""));
  EXPECT_EQ(plan.units[0].numel(), 410);
}

TEST(Wrap, AsksAPredicate) {
  Root root;
  const auto plan = plan_units(*root, WrapPolicy::predicate([](const WrapCandidate& candidate) {
    return candidate.path == "right.first" || candidate.class_name == "Branch";
  }),
                               "");
  EXPECT_THAT(paths(plan), ElementsAre("", "left", "right", "right.first"));
  EXPECT_EQ(plan.units[2].numel(), 30);
}

TEST(Wrap, LeavesIgnoredModulesAlone) {
  Root root;
  const auto plan = plan_units(*root, WrapPolicy::marked(), "left\\.first|plain");
  EXPECT_THAT(paths(plan),
              ElementsAre("", "left", "left.second", "right", "right.first", "right.second"));
  EXPECT_EQ(plan.units[0].numel(), 0);
  EXPECT_THAT(message_of([&] { plan_units(*root, WrapPolicy::marked(), "("); }),
              HasSubstr("not a regular expression"));
}

// A module that registers somebody else's tensor under a name of its own.
struct TiedHeadImpl : Unit {
  explicit TiedHeadImpl(at::Tensor shared) { weight = register_parameter("weight", shared); }
  at::Tensor forward(at::Tensor x) { return x.matmul(weight); }
  at::Tensor weight;
};
FULLSHARD_UNIT(TiedHead);

struct TiedRootImpl : Unit {
  TiedRootImpl() {
    branch = register_module("branch", Branch());
    head = register_module("head", TiedHead(branch->first->linear->weight));
    inner = register_module("inner", TiedHead(branch->second->linear->weight));
  }
  at::Tensor forward(at::Tensor x) { return x; }
  Branch branch{nullptr};
  TiedHead head{nullptr}, inner{nullptr};
};
FULLSHARD_UNIT(TiedRoot);

TEST(Wrap, GivesATiedParameterToTheSmallestUnitAroundAllItsUsers) {
  TiedRoot root;
  const auto plan = plan_units(*root, WrapPolicy::marked(), "");
  ASSERT_EQ(plan.units[0].parameters.size(), 2u);
  EXPECT_THAT(plan.units[0].parameters[0].names,
              ElementsAre("branch.first.linear.weight", "head.weight"));
  int64_t total = 0;
  for (const auto& unit : plan.units) total += unit.numel();
  EXPECT_EQ(total, 50);
}

TEST(Wrap, PrintsTheTree) {
  Root root;
  const auto text = plan_units(*root, WrapPolicy::classes({"Branch"}), "").tree();
  EXPECT_EQ(text,
            "root (Root)                                        310 parameters   1.21 KiB\n"
            "  left (Branch)                                     50 parameters      200 B\n"
            "  right (Branch)                                    50 parameters      200 B\n");
}

TEST(Wrap, RefusesARootThatIsNoUnit) {
  torch::nn::Linear linear(2, 2);
  EXPECT_THAT(message_of([&] { plan_units(*linear, WrapPolicy::none(), ""); }),
              HasSubstr("module '(root)' of class Linear is no unit"));
}

}  // namespace
}  // namespace fullshard::engine
