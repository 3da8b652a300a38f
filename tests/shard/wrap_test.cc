#include "fullshard/shard/wrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "fullshard/base/error.h"
#include "fullshard/nn/unit.h"
#include "tests/errors.h"

namespace fullshard {
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
  EXPECT_THAT(message_of([&] { plan_units(*root, WrapPolicy::classes({"Linear"}), ""); }),
              HasSubstr("is no unit; derive it from fullshard::Unit"));
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
  EXPECT_THAT(plan.warnings[0], HasSubstr("module 'plain' of class Linear has 310 parameters"));
}

TEST(Wrap, WarnsWhenOneUnitHoldsMoreThanHalf) {
  Root root;
  const auto plan = plan_units(*root, WrapPolicy::marked(), "");
  ASSERT_THAT(plan.warnings, SizeIs(1));
  EXPECT_THAT(plan.warnings[0], HasSubstr("unit '(root)' holds 310 of 410 parameters"));
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
}  // namespace fullshard
