// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/node_line.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "fullshard/base/host_name.h"
#include "fullshard/launch/launch.h"
#include "fullshard/launch/port.h"
#include "fullshard/launch/remote_command.h"
#include "shell.h"
#include "tests/network_namespaces.h"

namespace fullshard::launch {
namespace {

using ::testing::HasSubstr;

// The lines of the nodes of a job.
class NodeLines : public ::testing::Test {
 protected:
  std::unique_ptr<NodeLine> line(int node, int nodes = 2, const std::string& secret = "token") {
    return std::make_unique<NodeLine>(NodeLineOptions{.address = "127.0.0.1",
                                                      .port = port_.number(),
                                                      .secret = secret,
                                                      .nodes = nodes,
                                                      .is_first = node == 0});
  }

  // Waits until `is_over` holds, which is certain to happen.
  template <class IsOver>
  static void run(const std::vector<NodeLine*>& lines, const IsOver& is_over) {
    while (!is_over()) {
      for (NodeLine* line : lines) line->wait();
    }
  }

  HeldPort port_ = HeldPort::free_one();
};

TEST_F(NodeLines, TellALossToEveryNodeAlsoToThoseThatComeLater) {
  const auto first = line(0, 3), second = line(1, 3);
  second->tell({.restart = 0, .status = 137, .text = "rank 1 on host n1: killed"});
  run({first.get(), second.get()}, [&] { return first->loss_of(0).has_value(); });
  EXPECT_FALSE(first->have_all_come());
  const auto third = line(2, 3);
  run({first.get(), third.get()}, [&] { return third->loss_of(0).has_value(); });
  EXPECT_EQ(third->loss_of(0)->status, 137);
  EXPECT_EQ(third->loss_of(0)->text, "rank 1 on host n1: killed");
  EXPECT_TRUE(first->have_all_come());
  first->tell({.restart = 1, .status = 3, .text = "rank 0 on host n0:\nexited"});
  run({first.get(), second.get(), third.get()},
      [&] { return second->loss_of(1) && third->loss_of(1); });
  EXPECT_EQ(second->loss_of(1)->text, "rank 0 on host n0: exited");
  EXPECT_EQ(second->loss_of(0), std::nullopt);  // its own
  EXPECT_EQ(third->loss_of(2), std::nullopt);
}

// The end of the connection shows that it was not believed.
TEST_F(NodeLines, BelieveNobodyWhoDoesNotKnowTheToken) {
  const auto first = line(0), stranger = line(1, 2, "another");
  stranger->tell({.restart = 0, .status = 1, .text = "a lie"});
  run({first.get(), stranger.get()}, [&] { return !stranger->is_connecting(); });
  run({first.get(), stranger.get()}, [&] { return stranger->is_connecting(); });
  EXPECT_EQ(first->loss_of(0), std::nullopt);
  EXPECT_FALSE(stranger->is_cut());
}

TEST_F(NodeLines, AreNotCutWhenNodeZeroEndsByItself) {
  auto first = line(0);
  const auto second = line(1);
  first->tell({.restart = 0, .status = 1, .text = "rank 0"});
  run({first.get(), second.get()}, [&] { return second->loss_of(0).has_value(); });
  std::thread other([&] { first.reset(); });
  run({second.get()}, [&] { return second->num_connections() == 0; });
  other.join();
  EXPECT_FALSE(second->is_cut());
}

TEST_F(NodeLines, AreCutWhenNodeZeroIsKilled) {
  const pid_t node = ::fork();
  if (node == 0) {
    const auto first = line(0);
    first->tell({.restart = 7, .status = 1, .text = "only to know who has come"});
    while (!first->have_all_come()) first->wait();
    ::_exit(0);
  }
  const auto second = line(1);
  run({second.get()}, [&] { return second->is_cut(); });
  EXPECT_FALSE(second->is_connecting());
  ::waitpid(node, nullptr, 0);
}

// The launcher that comes after it has missed both starts: node 1 reported one, the killed launcher
// the other.
TEST_F(NodeLines, TellALauncherOfNodeZeroThatComesBackWhichStartsAreOver) {
  const pid_t node = ::fork();
  if (node == 0) {
    const auto first = line(0);
    first->tell({.restart = 0, .status = 3, .text = "rank 0"});
    while (!first->have_all_come() || !first->loss_of(1)) first->wait();
    ::_exit(0);
  }
  const auto second = line(1);
  second->tell({.restart = 1, .status = 137, .text = "rank 1"});
  run({second.get()}, [&] { return second->is_cut(); });
  ::waitpid(node, nullptr, 0);
  const auto first = line(0);
  second->look_again();
  EXPECT_FALSE(second->is_cut());
  EXPECT_FALSE(second->have_all_come()) << "node 0 has to hear it again";
  run({first.get(), second.get()}, [&] { return first->loss_of(0) && first->loss_of(1); });
  EXPECT_EQ(first->loss_of(0)->status, 3);
  EXPECT_EQ(first->loss_of(1)->status, 137);
  EXPECT_TRUE(second->have_all_come());
}

TEST_F(NodeLines, LookAgainForALauncherOfNodeZeroThatEndedByItself) {
  auto first = line(0);
  const auto second = line(1);
  first->tell({.restart = 0, .status = 1, .text = "rank 0"});
  run({first.get(), second.get()}, [&] { return second->loss_of(0).has_value(); });
  std::thread other([&] { first.reset(); });
  run({second.get()}, [&] { return second->has_ended(); });
  second->look_again();  // while the end of the connection may still be on its way
  run({second.get()}, [&] { return second->num_connections() == 0; });
  other.join();
  EXPECT_FALSE(second->has_ended());
  first = line(0);
  run({first.get(), second.get()}, [&] { return first->loss_of(0).has_value(); });
}

TEST_F(NodeLines, GoOnWithoutAPortThatIsTaken) {
  const auto first = line(0);
  ::testing::internal::CaptureStderr();
  const auto again = line(0);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: launch: cannot listen on port " + std::to_string(port_.number()) +
                " (Address already in use); the other nodes will not hear at once of a rank "
                "that fails before all have met\n");
}

// A host without power closes no connection. Slow: it must be silent for some seconds.
TEST(NodeLinesSlow, AreCutWhenTheHostOfNodeZeroIsSilent) {
  const testing::TwoNamespaces spaces;
  if (!spaces.problem().empty()) GTEST_SKIP() << spaces.problem();
  NodeLineOptions options{
      .address = testing::TwoNamespaces::kFirstAddress, .port = 29531, .secret = "token"};
  std::unique_ptr<NodeLine> first, second;
  ASSERT_TRUE(
      testing::on_host(spaces.first(), [&] { first = std::make_unique<NodeLine>(options); }));
  options.is_first = false;
  ASSERT_TRUE(testing::on_host(spaces.second(), [&] {
    second = std::make_unique<NodeLine>(options);
    while (second->is_connecting()) second->connect();
  }));
  first->tell({.restart = 0, .status = 1, .text = "rank 0"});
  while (!second->loss_of(0)) {
    first->wait();
    second->wait();
  }
  spaces.cut();
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!second->has_ended() && std::chrono::steady_clock::now() < end) second->wait();
  EXPECT_TRUE(second->is_cut());
}

// Two nodes as a user starts them by hand. The ranks look for each other; then one is killed.
void expect_both_end(int victim) {
  const TemporaryFolder folder;
  const std::string script = kBeginsToMeet +
                             "touch ready.$RANK; if [ $RANK = " + std::to_string(victim) +
                             " ]; then until [ -e ready.0 ] && [ -e ready.1 ]; do sleep 0.02; "
                             "done; kill -9 $$; fi; sleep 300; touch overslept";
  const std::string port = std::to_string(20'000 + ::getpid() % 10'000);
  shell("cd " + folder.path() +
        "; export FULLSHARD_JOB_SECRET=x; node() { fullshard launch -n 1 --nnodes 2 --node-rank $1 "
        "--master-addr 127.0.0.1 --master-port " +
        port + " --notice 1000000 -- sh -c " + shell_quoted(script) +
        " > said.$1 2>&1; echo $? > status.$1; }; node 0 & node 1; wait");
  const std::string rank = std::to_string(victim), other = std::to_string(1 - victim);
  EXPECT_EQ(folder.read("status.0"), "137\n");
  EXPECT_EQ(folder.read("status.1"), "137\n");
  EXPECT_EQ(folder.read("said." + rank), "error: rank " + rank + ": killed by signal 9 (Killed)\n");
  EXPECT_EQ(folder.read("said." + other), "error: rank " + rank + " on host " + base::host_name() +
                                              ": killed by signal 9 (Killed)\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "overslept"));
}

TEST(NodesByHand, EndAtOnceWhenARankOfNodeZeroIsKilledBeforeAllHaveMet) { expect_both_end(0); }
TEST(NodesByHand, EndAtOnceWhenARankOfAnotherNodeIsKilledBeforeAllHaveMet) { expect_both_end(1); }

// A job of two nodes with one restart. Ranks write to ready.RANK.RESTART that they look for each
// other. Those that were started again meet when there is a file `end`, and succeed; the others end
// when there is a file fail.RANK. `meanwhile` runs in the meantime: $first is the launcher of node
// 0, and node N the command of a node.
class NodesThatComeBack {
 public:
  explicit NodesThatComeBack(const std::string& meanwhile) {
    const std::string script =
        kBeginsToMeet +
        "touch ready.$RANK.$TORCHELASTIC_RESTART_COUNT; if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; "
        "then until [ -e end ] && [ -e ready.0.1 ] && [ -e ready.1.1 ]; do sleep 0.02; done; else "
        "until [ -e fail.$RANK ]; do sleep 0.02; done; exit 3; fi";
    const int port = 20'000 + ::getpid() % 10'000;
    // Before that node 1 would keep looking for a node 0 that was killed.
    const std::string connected =
        fmt::format("until grep -q ':{:04X} 01 ' /proc/net/tcp || ! lives; do sleep 0.02; done; ",
                    node_line_port(port));
    shell("cd " + folder_.path() +
          "; export FULLSHARD_JOB_SECRET=x; node() { exec fullshard launch -n 1 --nnodes 2 "
          "--node-rank $1 --master-addr 127.0.0.1 --master-port " +
          std::to_string(port) + " --notice 1000000 --max-restarts 1 -- sh -c " +
          shell_quoted(script) +
          " >> said.$1 2>&1; }; lives() { kill -0 $second 2> /dev/null; }; "
          "is_there() { until [ -e $1 ] || ! lives; do sleep 0.02; done; }; "
          "is_said() { until grep -q \"$1\" said.1 || ! lives; do sleep 0.02; done; }; "
          "node 0 & first=$!; node 1 & second=$!; is_there ready.0.0; is_there ready.1.0; " +
          connected + meanwhile +
          "; wait $second; status=$?; echo $status > status.1; [ $status = 0 ] || kill $first; "
          "wait $first; echo $? > status.0");
  }
  std::string said(int node) const { return folder_.read("said." + std::to_string(node)); }
  std::string statuses() const { return folder_.read("status.0") + folder_.read("status.1"); }

 private:
  TemporaryFolder folder_;
};

constexpr const char* kOneRestart = "launch: restart 1 of 1\n";

// A keeper ends the ranks of a launcher that is killed.
TEST(NodesByHand, GoOnWithNodeZeroWhenItComesBackWithTheSameCommand) {
  const NodesThatComeBack nodes(
      "kill -9 $first; wait $first 2> /dev/null; is_there ready.1.1; touch end; node 0 & first=$!");
  EXPECT_EQ(nodes.statuses(), "0\n0\n");
  const std::string gone = "error: node 0: its launcher ended unexpectedly\n";
  EXPECT_EQ(nodes.said(1), gone + kOneRestart);
  EXPECT_EQ(nodes.said(0), gone + kOneRestart);
}

// There is no restart left then. The launcher that comes back hears of the one that it has missed.
TEST(NodesByHand, WaitForANodeZeroThatIsLostWhenTheRanksHaveBeenStartedAgain) {
  const NodesThatComeBack nodes(
      "touch fail.1; is_there ready.0.1; is_there ready.1.1; kill -9 $first; wait $first 2> "
      "/dev/null; is_said 'waiting for it'; rm ready.0.1; touch end; node 0 & first=$!");
  EXPECT_EQ(nodes.statuses(), "0\n0\n");
  EXPECT_EQ(nodes.said(1), std::string("error: rank 1: exited with status 3\n") + kOneRestart +
                               "launch: node 0: its launcher ended unexpectedly; waiting for "
                               "it to come back\n");
  const std::string lost =
      "error: rank 1 on host " + base::host_name() + ": exited with status 3\n" + kOneRestart;
  EXPECT_EQ(nodes.said(0), lost + lost);
}

// The output of node 1's launcher when its rank fails after it has heard of a loss on node 0.
std::string said_after_loss(int status_of_loss) {
  const TemporaryFolder folder;
  const std::string port = std::to_string(20'000 + ::getpid() % 10'000);
  const NodeLineOptions first{
      .address = "127.0.0.1", .port = node_line_port(std::stoi(port)), .secret = "x"};
  // It meets the others when its launcher is connected, which does not look for node 0 after that;
  // then it waits until its launcher has heard of the loss.
  const std::string script =
      kBeginsToMeet +
      fmt::format("until grep -q ':{:04X} 01 ' /proc/net/tcp; do :; done; ", first.port) +
      "printf m > /proc/self/fd/${FULLSHARD_MEETING%%:*}; touch ready; until grep "
      "-q 'rank 0' said; do :; done; echo 'error: the reason' >&2; exit 2";
  const pid_t node = ::fork();
  if (node == 0) {
    EXPECT_EQ(::chdir(folder.path().c_str()), 0);
    EXPECT_NE(std::freopen("said", "w", stderr), nullptr);
    launch({.ranks = 1,
            .command = {"sh", "-c", script},
            .notice = std::chrono::hours(1),
            .explains_itself = true,
            .tee = Tee::none,
            .nodes = 2,
            .node_rank = 1,
            .master_address = "127.0.0.1",
            .master_port = std::stoi(port),
            .secret = "x"});
    ::_exit(0);
  }
  NodeLine line(first);
  while (!std::filesystem::exists(folder / "ready")) line.wait();
  line.tell({.status = status_of_loss, .text = "rank 0 on host n0: has failed"});
  while (::waitpid(node, nullptr, WNOHANG) == 0) line.wait();
  return folder.read("said");
}

// The loss comes without its reason, which ranks that fail in the same way share.
TEST(NodesByHand, SayWhyTheirOwnRanksFailedLikeTheOneElsewhere) {
  EXPECT_EQ(said_after_loss(2), "error: rank 0 on host n0: has failed\nerror: the reason\n");
  EXPECT_EQ(said_after_loss(1), "error: rank 0 on host n0: has failed\n");
}

}  // namespace
}  // namespace fullshard::launch
