// SPDX-License-Identifier: Apache-2.0
// Runs a program of tests/programs as several processes, as a launcher would.
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

struct RankProgram {
  std::string name = "training_rank";
  std::vector<std::string> arguments = {};
  bool separate_hosts = false;              // each rank takes itself for a host of its own
  std::vector<std::string> variables = {};  // "NAME=VALUE", for all ranks
  double limit_s = 200;                     // what is left then is killed
  int expendable = -1;                      // this rank is killed once all others have ended
};

// A killed rank has exit status 128 + 9.
std::vector<RankResult> run_rank_program(int ranks, const RankProgram& program);

// training_rank with these arguments.
std::vector<RankResult> run_rank_processes(int ranks, const std::vector<std::string>& arguments,
                                           double limit_s = 200, int expendable = -1);

}  // namespace fullshard::testing
