// SPDX-License-Identifier: Apache-2.0
// What SLURM writes in short: lists of hosts and of numbers, and a port that belongs to a job.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fullshard::base {

// "n[01-03,7],m2" is n01 n02 n03 n7 m2.
std::vector<std::string> expand_host_list(std::string_view list);
// "2(x3),1" is 2 2 2 1.
std::vector<int> expand_counts(std::string_view list);
// Jobs on one host need different ports, and all ranks of a job know its name: 20000 to 29999.
int port_of_job(std::string_view job);

}  // namespace fullshard::base
