// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gpu/device_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::comm {
namespace {

struct Sharing {
  int first, second;  // ranks
  std::string text(const std::vector<RankDevice>& ranks) const {
    const auto& one = ranks[static_cast<size_t>(second)];
    return fmt::format("ranks {} and {} share GPU {} of host {}", first, second, one.gpu, one.host);
  }
};

std::optional<Sharing> find_sharing(const std::vector<RankDevice>& ranks) {
  std::map<std::pair<int, std::string>, int> owners;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const auto& one = ranks[static_cast<size_t>(rank)];
    const auto [owner, is_new] = owners.emplace(std::pair(one.host, one.gpu), rank);
    if (!is_new) return Sharing{owner->second, rank};
  }
  return std::nullopt;
}

void check_all_have_gpus(const std::vector<RankDevice>& ranks) {
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    if (!ranks[static_cast<size_t>(rank)].gpu.empty()) continue;
    fail_as(ErrorKind::usage,
            "world: rank {} computes on the CPU, others on GPUs; give all ranks the same device",
            rank);
  }
}

bool are_on_one_host(const std::vector<RankDevice>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](const auto& one) { return one.host == ranks.front().host; });
}

}  // namespace

LinkDecision decide_link(const std::vector<RankDevice>& ranks, const std::string& backend) {
  check_all_have_gpus(ranks);
  if (backend == "gloo") return {DeviceLink::staged};
  if (backend == "shm") return {DeviceLink::shared};
  const auto sharing = find_sharing(ranks);
  if (!sharing) return {DeviceLink::nccl};
  if (backend == "nccl") {
    fail_as(ErrorKind::usage,
            "world: backend nccl, but {}: nccl takes one rank per GPU; start fewer ranks, or let "
            "them share with backend auto",
            sharing->text(ranks));
  }
  if (are_on_one_host(ranks)) return {DeviceLink::shared};
  return {DeviceLink::staged,
          fmt::format("{}, so collectives between GPUs go through host memory, which is slow; "
                      "start one rank per GPU to use nccl",
                      sharing->text(ranks))};
}

}  // namespace fullshard::comm
