// SPDX-License-Identifier: Apache-2.0
// Ranks that were given different models are told which parameter differs, whichever rank it is.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

struct ComparedImpl : Unit {
  ComparedImpl() : weight(register_parameter("weight", at::ones({6}))) {}
  at::Tensor forward(const at::Tensor& x) { return (weight * x).sum(); }
  at::Tensor weight;
};
FULLSHARD_UNIT(Compared);

// What all of three ranks are told when `change` was made to one of them.
template <class Change>
std::string told_of(int odd_rank, const Change& change) {
  std::vector<std::string> told(3);
  run_ranks({.ranks = 3}, [&](const World& world) {
    Compared model;
    if (world.rank() == odd_rank) change(model);
    told[world.rank()] = message_of([&] { auto sharded = shard(model, world); });
  });
  EXPECT_EQ(told[1], told[0]);
  EXPECT_EQ(told[2], told[0]);
  return told[0];
}

constexpr auto kHave =
    "shard: ranks hold different models: rank 0 has {}, rank {} has {}; build the same model on "
    "every rank";

TEST(ComparedModels, AFrozenParameterIsNamedOnWhicheverRankItIs) {
  const auto freeze = [](Compared& model) { model->weight.set_requires_grad(false); };
  const std::string plain = "weight [6] Float in the root unit",
                    frozen = "weight [6] Float frozen in the root unit";
  EXPECT_EQ(told_of(1, freeze), fmt::format(kHave, plain, 1, frozen));
  EXPECT_EQ(told_of(2, freeze), fmt::format(kHave, plain, 2, frozen));
  EXPECT_EQ(told_of(0, freeze), fmt::format(kHave, frozen, 1, plain));
}

TEST(ComparedModels, ShapesAndDtypesAreNamed) {
  const std::string plain = "weight [6] Float in the root unit";
  EXPECT_EQ(told_of(1, [](Compared& model) { model->to(at::kDouble); }),
            fmt::format(kHave, plain, 1, "weight [6] Double in the root unit"));
  EXPECT_EQ(told_of(1,
                    [](Compared& model) {
                      model->weight.set_data(at::ones({2, 3}));
                    }),
            fmt::format(kHave, plain, 1, "weight [2, 3] Float in the root unit"));
}

TEST(ComparedModels, AParameterMoreIsNamed) {
  const auto add = [](Compared& model) { model->register_parameter("more", at::ones({2})); };
  EXPECT_EQ(told_of(1, add),
            fmt::format(kHave, "nothing more", 1, "more [2] Float in the root unit"));
  EXPECT_EQ(told_of(0, add),
            fmt::format(kHave, "more [2] Float in the root unit", 1, "nothing more"));
}

TEST(ComparedModels, EqualOnesAreToldNothing) {
  EXPECT_EQ(told_of(1, [](Compared&) {}), "no error");
}

}  // namespace
}  // namespace fullshard::testing
