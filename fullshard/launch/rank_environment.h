// SPDX-License-Identifier: Apache-2.0
// What tells a rank who it is: torchrun's variables, so that any program that torchrun can start
// finds itself here too, and the job's token.
#pragma once

#include <string>
#include <vector>

#include "fullshard/launch/launch.h"

namespace fullshard::launch {

// Where the ranks meet in one start of the job; the same for all of them.
struct Meeting {
  std::string address;
  int port = 0;
  std::string secret;  // empty: none
  int restart = 0;
  std::string notice = {};  // where ranks say that they have met; empty: nowhere
};

// NAME=value of this process's environment, without the variables that say which rank it is: they
// may come from a launcher around this one.
std::vector<std::string> inherited_environment();

int first_rank_of(const LaunchOptions& options);
int world_size_of(const LaunchOptions& options);

// The environment of every rank of this host, in order.
std::vector<std::vector<std::string>> rank_environments(const LaunchOptions& options,
                                                        const Meeting& meeting);

}  // namespace fullshard::launch
