// SPDX-License-Identifier: Apache-2.0
// Which hosts a job runs on, as DeepSpeed writes it: a file with lines "host slots=N", and texts
// that take hosts or slots in or out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fullshard::launch {

struct Host {
  std::string name;        // as ssh takes it: "node1", "user@node1"
  std::vector<int> slots;  // GPU numbers, or just places; one rank each
};

// Blank lines and those that begin with '#' are skipped. An Error lists every bad line of the file,
// each as file:line.
std::vector<Host> read_hostfile(const std::string& path);
std::vector<Host> parse_hostfile(std::string_view text, const std::string& path);

// "node1@node2:0,2": all slots of node1, two of node2. At most one of the two texts may be set.
// Keeps the hostfile's order and drops hosts without slots.
std::vector<Host> filter_hosts(const std::vector<Host>& hosts, const std::string& include,
                               const std::string& exclude);

}  // namespace fullshard::launch
