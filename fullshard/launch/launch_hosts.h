// SPDX-License-Identifier: Apache-2.0
// Starts a program on several hosts over ssh: one launcher on each, which looks after its ranks and
// listens to this one. When the connection or this launcher is gone, it ends them.
#pragma once

#include <string>
#include <vector>

#include "fullshard/launch/hostfile.h"
#include "fullshard/launch/launch.h"

namespace fullshard::launch {

struct HostsOptions {
  std::vector<Host> hosts;
  std::string ssh = "ssh";
  std::string launcher;              // the path of `fullshard`, the same on every host
  std::vector<std::string> exports;  // more variables that ranks on other hosts get
};

// `options` holds what is common to all hosts; ranks and nodes are the hosts'. Every host is tried
// before anything is started, and all that cannot be used are listed in one Error. Output and
// result as for launch().
LaunchResult launch_hosts(const LaunchOptions& options, const HostsOptions& hosts);

}  // namespace fullshard::launch
