// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <tuple>

#include "fullshard/base/error.h"
#include "fullshard/launch/cgroup.h"

namespace fullshard::launch {
namespace {

int topology(int core, const char* what) {
  int number = 0;
  std::ifstream(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", core, what)) >> number;
  return number;
}

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  std::vector<std::tuple<int, int, int>> places;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(static_cast<size_t>(core), &set)) continue;
    places.emplace_back(topology(core, "physical_package_id"), topology(core, "core_id"), core);
  }
  std::sort(places.begin(), places.end());
  std::vector<int> cores;
  for (const auto& place : places) cores.push_back(std::get<2>(place));
  return cores;
}

int num_usable_cores() {
  const int allowed = static_cast<int>(allowed_cores().size());
  const double share = cgroup_limits().cores.value_or(allowed);
  return std::clamp(static_cast<int>(std::ceil(share)), 1, std::max(1, allowed));
}

std::vector<int> cores_of(const std::vector<int>& cores, int local_rank, int ranks) {
  const int count = static_cast<int>(cores.size());
  if (count < ranks) {
    fail_as(ErrorKind::usage,
            "launch: --bind cores needs a core for each of the {} ranks, but {} may be used; use "
            "--bind none or fewer ranks",
            ranks, count);
  }
  return {cores.begin() + int64_t{count} * local_rank / ranks,
          cores.begin() + int64_t{count} * (local_rank + 1) / ranks};
}

}  // namespace fullshard::launch
