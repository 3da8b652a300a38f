// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/file_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

#include "fullshard/base/error.h"
#include "fullshard/comm/reduce_parts.h"

namespace fullshard::comm {
namespace {

constexpr int64_t kOwn = 128;             // streams, libraries, data, checkpoints and their threads
constexpr int64_t kStoreConnections = 2;  // to the store: of the rank and of its watch
constexpr int64_t kDescriptorsPerNeighbour = 3;  // while ranks of a host hand out their memory
constexpr int64_t kGroups = 3;                   // world, shards, replicas
constexpr int64_t kFilesPerGroup = 4;            // listener, event loop and the like

}  // namespace

int64_t raise_file_limit() {
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return std::numeric_limits<int64_t>::max();
  const rlimit wanted = {files.rlim_max, files.rlim_max};
  const bool is_raised =
      files.rlim_cur < files.rlim_max && ::setrlimit(RLIMIT_NOFILE, &wanted) == 0;
  const rlim_t limit = is_raised ? files.rlim_max : files.rlim_cur;
  return static_cast<int64_t>(
      std::min<rlim_t>(limit, static_cast<rlim_t>(std::numeric_limits<int64_t>::max())));
}

int64_t files_needed(const std::vector<int>& hosts, int rank, bool serves) {
  const HostOrder order(hosts);
  const auto size = static_cast<int64_t>(hosts.size());
  const auto here = static_cast<int64_t>(
      std::count(hosts.begin(), hosts.end(), hosts[static_cast<size_t>(rank)]));
  int64_t needed = kOwn + kStoreConnections + kDescriptorsPerNeighbour * here;
  if (serves) needed += kStoreConnections * size;
  if (order.num_hosts() == 1) return needed;
  // Over gloo a rank is connected with at most one of every other host.
  return needed + kGroups * (order.num_hosts() - 1 + kFilesPerGroup);
}

void check_file_limit(int64_t needed, int64_t limit, int num_ranks) {
  check(
      needed <= limit,
      "world: with {} ranks this one opens up to {} files and connections, but may open {} (ulimit "
      "-n); raise the hard limit to {} or more",
      num_ranks, needed, limit, needed);
}

}  // namespace fullshard::comm
