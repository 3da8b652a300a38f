// One rank as a child process.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/launch/line_prefix.h"

namespace fullshard {

class RankProcess {
 public:
  // `environment` holds NAME=value texts. Throws Error when the program cannot be executed.
  RankProcess(int rank, const std::vector<std::string>& command,
              const std::vector<std::string>& environment);
  ~RankProcess();  // kills it if it still runs
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  int rank() const { return rank_; }
  bool is_running() const { return !ended_; }
  void signal(int number) const;

  // Looks whether it has ended; true once, when it has.
  bool has_just_ended();
  bool has_failed() const { return ended_ && wait_status_ != 0; }
  bool was_killed() const;
  int exit_status() const;           // 128 + n for signal n
  std::string how_it_ended() const;  // "exited with status 3", "killed by signal 9 (Killed)"

  // Its standard output and error, where they come through this process; -1 when closed.
  const std::array<int, 2>& outputs() const { return outputs_; }
  // Passes on what has arrived from outputs()[which], if anything; closes it at its end.
  bool pass_output(size_t which);
  // Everything that has arrived, and a last line without an end.
  void pass_rest();

 private:
  void write_out(size_t which, const std::string& text) const;

  int rank_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int wait_status_ = 0;
  std::array<int, 2> outputs_ = {-1, -1};
  std::array<LinePrefix, 2> lines_;
};

}  // namespace fullshard
