// SPDX-License-Identifier: Apache-2.0
#include "tests/training/rank_processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "fullshard/base/error.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using Clock = std::chrono::steady_clock;

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t start_rank(int rank, int ranks, int port, const RankProgram& program,
                 const TemporaryFolder& folder) {
  std::vector<std::string> command = {FULLSHARD_TEST_PROGRAMS "/" + program.name};
  command.insert(command.end(), program.arguments.begin(), program.arguments.end());
  std::vector<std::string> variables = {"RANK=" + std::to_string(rank),
                                        "WORLD_SIZE=" + std::to_string(ranks),
                                        "LOCAL_RANK=" + std::to_string(rank),
                                        "LOCAL_WORLD_SIZE=" + std::to_string(ranks),
                                        "MASTER_ADDR=127.0.0.1",
                                        "MASTER_PORT=" + std::to_string(port),
                                        "OMP_NUM_THREADS=1"};
  variables.insert(variables.end(), program.variables.begin(), program.variables.end());
  if (program.separate_hosts) variables.push_back("NCCL_HOSTID=" + std::to_string(rank));
  for (const char* name : {"PATH", "TSAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) variables.push_back(std::string(name) + "=" + value);
  }
  auto argv = pointers_to(command);
  auto environment = pointers_to(variables);
  // Not fork: handlers that libraries register for it may not survive in a threaded process.
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const auto redirect = [&](int fd, const char* kind) {
    posix_spawn_file_actions_addopen(&files, fd, folder.file(kind + std::to_string(rank)).c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  };
  redirect(STDOUT_FILENO, "out");
  redirect(STDERR_FILENO, "err");
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&files);
  check(error == 0, "{}: cannot be started: {}", command[0], std::strerror(error));
  return pid;
}

}  // namespace

std::vector<RankResult> run_rank_program(int ranks, const RankProgram& program) {
  const TemporaryFolder folder;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const int port = free_port();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_rank(rank, ranks, port, program, folder));
  }
  std::vector<RankResult> results(ranks);
  for (int left = ranks; left > 0;) {
    for (int rank = 0; rank < ranks; ++rank) {
      int status = 0;
      if (pids[rank] == 0 || waitpid(pids[rank], &status, WNOHANG) == 0) continue;
      results[rank].ended = seconds();
      results[rank].exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      pids[rank] = 0;
      --left;
    }
    const bool only_expendable =
        left == 1 && program.expendable >= 0 && pids[program.expendable] != 0;
    for (const pid_t pid : pids) {
      if (pid != 0 && (only_expendable || seconds() > program.limit_s)) kill(pid, SIGKILL);
    }
    usleep(2000);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    results[rank].output = read_file(folder.file("out" + std::to_string(rank)));
    results[rank].errors = read_file(folder.file("err" + std::to_string(rank)));
  }
  return results;
}

std::vector<RankResult> run_rank_processes(int ranks, const std::vector<std::string>& arguments,
                                           double limit_s, int expendable) {
  return run_rank_program(ranks,
                          {.arguments = arguments, .limit_s = limit_s, .expendable = expendable});
}

}  // namespace fullshard::testing
