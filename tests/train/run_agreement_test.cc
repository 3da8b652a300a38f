// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_agreement.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::train {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

// What every rank says, once.
std::set<std::string> said(const std::function<Facts(int rank)>& facts) {
  std::set<std::string> all;
  std::mutex mutex;
  run_ranks({.ranks = 3}, [&](const World& world) {
    std::string text;
    try {
      check_alike(world.communicator(), facts(world.rank()));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      text = error.what();
    }
    const std::lock_guard lock(mutex);
    all.insert(text);
  });
  return all;
}

TEST(RunAgreement, IsSilentWhereAllRanksAreAlike) {
  EXPECT_EQ(said([](int) {
              return Facts{{"--lr", "0.1"}, {"--seed", "1"}};
            }),
            std::set<std::string>{""});
}

TEST(RunAgreement, NamesTheFirstDifferenceOnEveryRank) {
  const auto found = said([](int rank) {
    return Facts{{"--lr", "0.1"}, {"--seed", rank == 2 ? "2" : "1"}, {"--clip", "x"}};
  });
  EXPECT_EQ(found, std::set<std::string>{
                       "ranks disagree: rank 0 has --seed 1, rank 2 has --seed 2; start all of "
                       "them with the same flags, configuration and data"});
  const auto shorter = said([](int rank) { return rank == 1 ? Facts{} : Facts{{"--lr", "1"}}; });
  EXPECT_EQ(shorter, std::set<std::string>{
                         "ranks disagree: rank 0 has --lr 1, rank 1 has nothing more; start all of "
                         "them with the same flags, configuration and data"});
}

}  // namespace
}  // namespace fullshard::train
