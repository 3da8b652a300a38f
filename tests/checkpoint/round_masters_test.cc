// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/round_masters.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/saved_state.h"

namespace fullshard::testing {
namespace {

TEST(RoundMasters, GivesTheNearestValuesOfTheComputeDtype) {
  for (const int ranks : {1, 2, 3}) {
    for (const auto& way : {plain_way(ranks), in_bf16(plain_way(ranks))}) {
      SCOPED_TRACE(way.name);
      run_ranks({.ranks = ranks}, [&](const World& world) {
        RankRun run(world, way.options, false);
        run.train(0, 1);
        const auto before = master_values(run.sharded);
        checkpoint::round_masters(run.sharded);
        const auto compute = way.options.param_dtype.value_or(at::kFloat);
        for (const auto& [name, values] : master_values(run.sharded)) {
          const auto expected = before.at(name).to(compute).to(values.scalar_type());
          EXPECT_TRUE(at::equal(values, expected)) << name;
        }
        EXPECT_NO_THROW(run.train(1, 2));
      });
    }
  }
}

}  // namespace
}  // namespace fullshard::testing
