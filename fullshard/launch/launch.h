// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of a program on this host and looks after them until all have ended.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::launch {

enum class Tee { all, first, none };  // whose output is shown here
enum class Binding { none, cores };   // cores: every rank has its own

struct LaunchOptions {
  int ranks = 1;                     // on this host
  std::vector<std::string> command;  // the program (found in PATH) and its arguments
  // When a rank has failed, the others usually notice it and end by themselves with a message about
  // its last act: they have this long before they are told to end.
  std::chrono::milliseconds notice = std::chrono::seconds(3);
  // How long ranks that are told to end (SIGTERM) may take before they are killed.
  std::chrono::milliseconds grace = std::chrono::seconds(30);
  // The program says on its last line why it fails ("error: …"): nothing is added to that.
  bool explains_itself = false;
  // After a first signal the program saves what it has to save and ends by itself with status 130:
  // no grace applies then, and only a second signal ends it at once. A rank that ends with 130 was
  // interrupted, even if the signal did not come through here.
  bool saves_itself = false;
  int max_restarts = 0;  // how often all ranks are started again after a failure

  // The configuration that the program finds in its environment, as named in messages; empty: none.
  std::string config = {};

  std::string log_dir = {};  // rank-N.log of every rank; empty: none
  // Logs that a folder already holds stay until a rank says that the run may begin in it
  // (base/rank_notice); until then the new ones are rank-N.log.new.
  bool logs_wait = false;
  Tee tee = Tee::all;
  Binding binding = Binding::none;
  std::vector<int> devices = {};    // GPUs that the ranks may see; empty: unchanged
  std::vector<int> kept_open = {};  // descriptors to inherit in addition to the standard ones

  // This host among several that are started by hand, by srun or over ssh.
  int nodes = 1;
  int node_rank = 0;
  std::optional<int> first_rank = {}, world_size = {};  // where hosts have different rank counts
  std::string master_address = {};                      // empty: this host alone
  int master_port = 0;                                  // 0: a free one; 29500 for several hosts
  std::string secret = {};  // the job's token; empty: FULLSHARD_JOB_SECRET, or a new one

  // Set by a launcher that starts this one on another host.
  int restart_count = 0;  // starts of the job before this one
  int control = -1;       // signals come through it; its end means that the launcher is gone
};

struct LaunchResult {
  int status = 0;  // 0; the first failing rank's; 128 + n for signal n; 130: interrupted
  std::optional<int> failed_rank = {};  // the one that failed first
  // "rank 1: exited with status 3", or where it explained itself "rank 1: " and why; "interrupted
  // by SIGINT".
  std::string message = {};
  bool interrupted = false;
};

// Every rank runs the command with torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
// TORCHELASTIC_RESTART_COUNT, ...), NODE_RANK, FULLSHARD_JOB_SECRET and, if unset, OMP_NUM_THREADS,
// in a process group of its own. Rank 0's lines are shown as they are, the others' begin with
// "[rank] ". Where only rank 0's are shown and the program is ours, warnings of others that rank 0
// is late are shown too. When a rank fails, it is named on standard error with its last lines, and
// the others are ended; SIGINT, SIGTERM and SIGHUP are passed on, and a second SIGINT or SIGTERM
// kills. Nothing that a rank started in its process group outlives it or this process. Standard
// output that is no longer read ends nothing; one without room gives status 1 at the end. Throws
// Error when the program cannot be started. Blocks those signals in the calling thread while it
// runs; call it from a program's main thread.
LaunchResult launch(const LaunchOptions& options);

// Whether ranks that ended like this, after this many restarts, are started again.
bool is_worth_a_restart(const LaunchOptions& options, const LaunchResult& result, int restarts);

}  // namespace fullshard::launch
