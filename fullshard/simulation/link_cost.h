// SPDX-License-Identifier: Apache-2.0
// How long a collective takes by the model that NCCL itself chooses its algorithms with: latency
// per hop and bandwidth, rings and trees, three protocols; the fastest one counts.
#pragma once

#include "fullshard/simulation/cluster.h"
#include "fullshard/simulation/schedule.h"

namespace fullshard::simulation {

// The share of a link's data sheet that collectives reach: 360 of 450 GB/s on hosts with NVLink 4,
// 235 of 300 with NVLink 3 (NCCL's own bound), the same between hosts.
inline constexpr double kReachedShare = 0.8;

// The share of a GPU that a collective's own kernels take: some 20 of 132 multiprocessors.
inline constexpr double kNcclShare = 0.15;

// Inside a host over its links; between hosts every GPU adds its share of the network.
enum class LinkLevel { none, inside, between };
LinkLevel level_of(const comm::GroupShape& group);

double seconds_of(const Collective& call, const Cluster& cluster);

// What a rank sends in it, and of that what leaves its host: NCCL's rings, over all links equally.
struct SentBytes {
  double all = 0, between_hosts = 0;
};
SentBytes sent_bytes(const Collective& call);

// The share of compute that it takes while it runs. Without GPUs the cores that compute also copy.
double share_of(const Collective& call, const Cluster& cluster);

}  // namespace fullshard::simulation
