// SPDX-License-Identifier: Apache-2.0
// The shm backend between processes: how they meet, and what is left when one is killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "fullshard/base/error.h"
#include "fullshard/comm/shm/shm_socket.h"
#include "tests/files.h"

extern char** environ;

namespace fullshard::comm {
namespace {

using fullshard::testing::entries_of;
using fullshard::testing::file_exists;
using fullshard::testing::read_file;
using fullshard::testing::TemporaryFolder;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class ShmProcesses : public ::testing::Test {
 protected:
  ~ShmProcesses() override {
    for (const pid_t process : running_) {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
  }

  std::string output_of(int rank) const { return folder_.file("output-" + std::to_string(rank)); }

  pid_t start(int rank, int size, const std::string& scenario) {
    const std::string words[] = {FULLSHARD_TEST_PROGRAMS "/comm_shm_peer", folder_.path(),
                                 std::to_string(rank), std::to_string(size), scenario};
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, output_of(rank).c_str(),
                                     O_CREAT | O_WRONLY | O_TRUNC, 0600);
    pid_t process = 0;
    const int error =
        ::posix_spawn(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    check(error == 0, "{}: cannot be started: {}", words[0], std::strerror(error));
    running_.push_back(process);
    return process;
  }

  int status_of(pid_t process) {
    int status = 0;
    ::waitpid(process, &status, 0);
    std::erase(running_, process);
    return status;
  }

  std::string invitation() const {
    const auto path = folder_.file("shm-meeting");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!file_exists(path) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    return read_file(path);
  }

  TemporaryFolder folder_;
  std::vector<pid_t> running_;
};

TEST_F(ShmProcesses, UseEveryCollective) {
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 3; ++rank) processes.push_back(start(rank, 3, "all"));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(status_of(processes[rank]), 0);
    EXPECT_EQ(read_file(output_of(rank)), "well\n");
  }
}

TEST_F(ShmProcesses, AKilledRankIsNamedAndNothingIsLeft) {
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 3; ++rank) processes.push_back(start(rank, 3, "die"));
  const std::string socket = invitation().substr(0, invitation().find(' '));
  // Not reaped: a zombie is dead for the others.
  siginfo_t end = {};
  ::waitid(P_PID, static_cast<id_t>(processes[1]), &end, WEXITED | WNOWAIT);
  EXPECT_EQ(end.si_status, SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(WEXITSTATUS(status_of(processes[rank])), 1);
    EXPECT_EQ(read_file(output_of(rank)),
              "rank " + std::to_string(rank) +
                  ": reduce_scatter of blocks.3 (group world, sequence 3) waits for rank 1, "
                  "which died; its last act: barrier (sequence 2), finished; see rank 1's log\n");
  }
  for (const auto& name : entries_of("/dev/shm")) {
    if (name.starts_with("fullshard-test-")) continue;  // of tests that run beside this one
    EXPECT_THAT(name, ::testing::Not(HasSubstr("fullshard")));
  }
  EXPECT_THAT(read_file("/proc/net/unix"), ::testing::Not(HasSubstr(socket)));
}

// A death is named within two seconds, in the best of three attempts.
TEST_F(ShmProcesses, AKilledRankIsNamedToThoseWhoWaitForItOnALinkBesideTheHost) {
  double best = 1e9;
  for (int attempt = 0; attempt < 3 && best > 2; ++attempt) {
    for (const auto& name : entries_of(folder_.path())) ::unlink(folder_.file(name).c_str());
    std::vector<pid_t> processes;
    for (int rank = 0; rank < 3; ++rank) {
      processes.push_back(start(rank, 3, "die behind a link"));
    }
    double slowest = 0;
    for (const int rank : {0, 2}) {
      EXPECT_EQ(WEXITSTATUS(status_of(processes[static_cast<size_t>(rank)])), 1);
      const std::string output = read_file(output_of(rank));
      slowest = std::max(slowest, std::stod(output));
      EXPECT_THAT(output,
                  EndsWith("rank " + std::to_string(rank) +
                           ": all_gather of blocks.3 (group world, sequence 5) waits for "
                           "rank 1, which died; its last act: barrier (sequence 1), finished; see "
                           "rank 1's log\n"));
    }
    status_of(processes[1]);
    best = std::min(best, slowest);
  }
  EXPECT_LE(best, 2);
}

TEST_F(ShmProcesses, MissingRanksAreNamedAfterTheInitTimeout) {
  const pid_t zero = start(0, 4, "missing");
  const pid_t two = start(2, 4, "missing");
  for (const pid_t process : {zero, two}) EXPECT_EQ(WEXITSTATUS(status_of(process)), 1);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(read_file(output_of(rank)),
              "shm: ranks 1, 3 of 4 did not come within 1 s (init timeout); see their logs\n");
  }
}

TEST_F(ShmProcesses, StrangersAtTheSocketNeitherJoinNorHoldUpTheRanks) {
  const pid_t zero = start(0, 2, "all");
  const std::string name = invitation().substr(0, invitation().find(' '));
  const auto silent = LocalSocket::connect(name);
  const auto impostor = LocalSocket::connect(name);
  SocketMessage offer;
  offer.kind = SocketMessage::offer;
  offer.rank = 1;
  offer.size = 2;
  const int descriptors[] = {0, 1};
  EXPECT_TRUE(impostor.send(offer, descriptors));  // without the secret
  const pid_t one = start(1, 2, "all");
  EXPECT_EQ(status_of(zero), 0);
  EXPECT_EQ(status_of(one), 0);
  EXPECT_FALSE(impostor.receive().has_value());
}

}  // namespace
}  // namespace fullshard::comm
