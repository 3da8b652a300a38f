// SPDX-License-Identifier: Apache-2.0
// One process that the launcher looks after: a rank, or a connection to another host.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/launch/child_output.h"

namespace fullshard::launch {

class Keeper;

struct ChildOptions {
  std::string name;                      // "rank 1", "host n2"
  int number = 0;                        // rank or node
  std::vector<std::string> command;      // the program is found in PATH
  std::vector<std::string> environment;  // NAME=value
  std::vector<int> cores = {};           // the only ones that it may use; empty: all
  ChildOutputOptions output = {};
  bool direct = false;              // it has this process's own standard output and error
  bool has_input = false;           // it has this process's standard input; otherwise none
  bool is_remote = false;           // a launcher reads signals from its standard input
  std::vector<int> kept_open = {};  // descriptors to inherit in addition to the standard ones
};

// The leader of a process group of its own, which ends with it.
class ChildProcess {
 public:
  // Throws Error when the program cannot be executed. The keeper outlives this.
  ChildProcess(const ChildOptions& options, const Keeper& keeper);
  ~ChildProcess();  // kills the group if it still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return name_; }
  int number() const { return number_; }
  bool is_running() const { return !ended_; }
  // Signals the whole group. A remote launcher gets a line of text; after a SIGKILL, signals go to
  // the connection itself.
  void signal(int number);
  // Writes a line to the standard input of a remote launcher; does nothing for a rank.
  void tell(const std::string& line) const;

  // Returns true once, when it has ended. Kills what is left of its group.
  bool has_just_ended();
  bool has_failed() const { return ended_ && wait_status_ != 0; }
  bool was_killed() const;
  bool was_killed_by(int number) const;
  int exit_status() const;           // 128 + n for signal n
  std::string how_it_ended() const;  // "exited with status 3", "killed by signal 9 (Killed)"

  // Where its standard output and error arrive if they come through this process; -1 when closed.
  const std::array<int, 2>& outputs() const { return outputs_; }
  // Whether it writes to this process's own standard output and error.
  bool is_direct() const { return is_direct_; }
  // Passes on what has arrived from outputs()[stream], if anything; closes it at its end.
  bool pass_output(size_t stream);
  // Passes on everything that has arrived, and a last line without an end.
  void pass_rest();
  const ChildOutput& output() const { return output_; }
  // Its log replaces that of an older run, if it has not yet.
  void accept_log() { output_.accept_log(); }

 private:
  void close_outputs();

  std::string name_;
  int number_;
  const Keeper& keeper_;
  pid_t pid_ = -1;
  bool is_direct_ = false;
  bool ended_ = false;
  int wait_status_ = 0;
  int control_ = -1;
  std::array<int, 2> outputs_ = {-1, -1};
  ChildOutput output_;
};

}  // namespace fullshard::launch
