// Starts the ranks of a program on this host and looks after them until all have ended.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace fullshard {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command;  // the program (found in PATH) and its arguments
  // When a rank has failed, the others usually miss it and end by themselves with a message that
  // says what it did last: they may take so long before they are told to end.
  std::chrono::milliseconds notice = std::chrono::seconds(3);
  // How long ranks that are told to end (SIGTERM) may take before they are killed.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

struct LaunchResult {
  int status = 0;  // 0; the first failing rank's; 128 + n for signal n; 130 interrupted
  std::optional<int> failed_rank;  // the first by time
  std::string message;             // "rank 1: exited with status 3"
};

// Every rank runs the command with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT, FULLSHARD_JOB_SECRET and, if unset, OMP_NUM_THREADS. Rank 0 has this process's
// output; the others' lines begin with "[rank] ". When a rank fails, it is named on standard error
// and the others are ended; SIGINT, SIGTERM and SIGHUP are passed on. Ranks die with this process.
// Throws Error when the program cannot be started. Blocks those signals in the calling thread while
// it runs; call it from a program's main thread.
LaunchResult launch(const LaunchOptions& options);

}  // namespace fullshard
