// Runs tests/programs/training_rank as several processes, as a launcher would.
#pragma once

#include <string>
#include <vector>

namespace fullshard::testing {

struct RankResult {
  int exit_status = -1;  // or 128 + signal
  std::string output;
  std::string errors;
  double ended = 0;  // seconds after the start
};

// Kills what is left after `limit_s`, and the `expendable` rank once all others have ended; such a
// rank has exit status 128 + 9.
std::vector<RankResult> run_rank_processes(int ranks, const std::vector<std::string>& arguments,
                                           double limit_s = 200, int expendable = -1);

}  // namespace fullshard::testing
