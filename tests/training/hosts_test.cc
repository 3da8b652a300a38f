// SPDX-License-Identifier: Apache-2.0
// Ranks as processes on two hosts, which are network namespaces: the same result as on one machine,
// and a link that is cut in the middle of a step ends every rank with a name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>

#include "tests/files.h"
#include "tests/network_namespaces.h"
#include "tests/training/rank_processes.h"

namespace fullshard::testing {
namespace {

using ::testing::AnyOf;
using ::testing::StartsWith;

class TrainingOnTwoHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!spaces_.problem().empty()) GTEST_SKIP() << spaces_.problem();
  }

  // Starts training_rank, `per_host` on each host; rank 0's output is the pipe's.
  std::FILE* start(int per_host, const std::string& arguments) {
    std::string line;
    for (int rank = 2 * per_host - 1; rank >= 0; --rank) {
      line += fmt::format(
          "ip netns exec {} env RANK={} WORLD_SIZE={} MASTER_ADDR={} MASTER_PORT=29521 "
          "FULLSHARD_JOB_SECRET=shared OMP_NUM_THREADS=1 " FULLSHARD_TEST_PROGRAMS
          "/training_rank {} 2> {} {}",
          rank < per_host ? spaces_.first() : spaces_.second(), rank, 2 * per_host,
          TwoNamespaces::kFirstAddress, arguments, errors_file(rank), rank > 0 ? "& " : "; ");
    }
    return ::popen((line + "status=$?; wait; exit $status").c_str(), "r");
  }
  std::string errors_file(int rank) const {
    return fmt::format("{}/errors-{}", files_.path(), rank);
  }
  std::string errors_of(int rank) const {
    std::ifstream file(errors_file(rank));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // The one that it waited for and that cannot be reached.
  std::string rank_named_by(int rank) const {
    const std::string errors = errors_of(rank);
    std::smatch found;
    const std::regex words(
        fmt::format("rank {}: [^;]* waits for (rank [0-3]), which cannot be reached; ", rank));
    return std::regex_search(errors, found, words) ? found[1].str() : "";
  }

  std::string digest_of(int per_host, const std::string& arguments) {
    std::FILE* pipe = start(per_host, arguments);
    char line[256] = "";
    while (std::fgets(line, sizeof line, pipe) != nullptr) {
    }
    EXPECT_EQ(WEXITSTATUS(::pclose(pipe)), 0) << errors_of(0) << errors_of(per_host);
    return line;
  }

  const TwoNamespaces spaces_;
  const TemporaryFolder files_;
};

// One rank on each host adds in the order of one host with two.
TEST_F(TrainingOnTwoHosts, GivesTheBitsOfOneHost) {
  const auto alone = run_rank_processes(2, {"--steps", "3"});
  ASSERT_THAT(alone[0].output, StartsWith("digest "));
  EXPECT_EQ(digest_of(1, "--steps 3"), alone[0].output);
}

// Host by host is another order than all in a row; it is the same for every strategy, and for ranks
// that are only told to be on two hosts.
TEST_F(TrainingOnTwoHosts, WithTwoRanksEachGivesTheSameBitsForFullAndHybridSharding) {
  const std::string full = digest_of(2, "--steps 3 --strategy FULL_SHARD");
  ASSERT_THAT(full, StartsWith("digest "));
  EXPECT_EQ(digest_of(2, "--steps 3 --strategy HYBRID_SHARD"), full);
  EXPECT_EQ(digest_of(2, "--steps 3 --strategy FULL_SHARD --private-copies"), full);
}

// Slow: a host must be silent for some seconds.
class CutLinkSlow : public TrainingOnTwoHosts, public ::testing::WithParamInterface<std::string> {};

// Calls have ten minutes: none of them comes to its limit. A rank may wait for one of its own host,
// which waits for one beyond, and does not name that one.
TEST_P(CutLinkSlow, InTheMiddleOfAStepEndsEveryRankAndIsNamedByARankBeyondIt) {
  std::FILE* rank_0 = start(2, "--steps 100000000 --says-steps --strategy " + GetParam());
  char line[256] = "";
  while (std::fgets(line, sizeof line, rank_0) != nullptr &&
         std::string(line) != "backward of step 3\n") {
  }
  ASSERT_STREQ(line, "backward of step 3\n") << errors_of(0);
  spaces_.cut();
  while (std::fgets(line, sizeof line, rank_0) != nullptr) {
  }
  EXPECT_EQ(WEXITSTATUS(::pclose(rank_0)), 1) << "and all others have ended";
  const std::string first = rank_named_by(0);
  EXPECT_THAT(first, AnyOf("rank 2", "rank 3")) << errors_of(0);
  EXPECT_EQ(rank_named_by(1), first) << errors_of(1);
  EXPECT_EQ(rank_named_by(2), "rank 0") << errors_of(2);
  EXPECT_EQ(rank_named_by(3), "rank 0") << errors_of(3);
}

INSTANTIATE_TEST_SUITE_P(Strategies, CutLinkSlow, ::testing::Values("FULL_SHARD", "HYBRID_SHARD"));

}  // namespace
}  // namespace fullshard::testing
