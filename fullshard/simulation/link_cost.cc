// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/link_cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace fullshard::simulation {
namespace {

constexpr double kLaunchSeconds = 8.4e-6;  // of a ring, before its first hop

// Shares of the latencies and the bandwidth of plain messages ("Simple"), as in NCCL's
// graph/tuning.cc.
struct Protocol {
  double inside_latency, between_latency, bandwidth;
};
constexpr std::array<Protocol, 3> kProtocols = {
    {{1, 1, 1}, {0.56, 0.29, 0.92}, {0.18, 0.19, 0.25}}};  // Simple, LL128, LL
constexpr double kTreeBandwidth = 0.9;

struct Ring {
  int hops_inside = 0, hops_between = 0;
  double bytes = 0;  // that every link carries
};

double bandwidth_of(const comm::GroupShape& group, const Cluster& cluster) {
  if (level_of(group) == LinkLevel::inside) return kReachedShare * cluster.inside.bandwidth;
  const double of_host = group.on_host * cluster.between.bandwidth;
  const bool has_inside = group.on_host > 1;
  return kReachedShare * (has_inside ? std::min(of_host, cluster.inside.bandwidth) : of_host);
}

double ring_seconds(const Ring& ring, const comm::GroupShape& group, const Cluster& cluster) {
  double best = INFINITY;
  for (const auto& protocol : kProtocols) {
    const double latency = ring.hops_inside * protocol.inside_latency * cluster.inside.latency +
                           ring.hops_between * protocol.between_latency * cluster.between.latency;
    best =
        std::min(best, latency + ring.bytes / (protocol.bandwidth * bandwidth_of(group, cluster)));
  }
  return kLaunchSeconds + best;
}

// Up and down again, half of the links' bandwidth each way.
double tree_seconds(double bytes, const comm::GroupShape& group, const Cluster& cluster) {
  const auto num_hosts = static_cast<unsigned>(std::max(group.size / group.on_host, 1));
  const int depth = std::bit_width(num_hosts) - 1;
  double best = INFINITY;
  for (const auto& protocol : kProtocols) {
    const double latency =
        2 * ((group.on_host - 1) * protocol.inside_latency * cluster.inside.latency +
             depth * protocol.between_latency * cluster.between.latency);
    const double bandwidth = kTreeBandwidth * protocol.bandwidth * bandwidth_of(group, cluster) / 2;
    best = std::min(best, latency + bytes / bandwidth);
  }
  return best;
}

// `rounds` times around, each carrying (N-1)/N of the bytes.
Ring ring_of(const comm::GroupShape& group, double bytes, int rounds) {
  const int num_hosts = std::max(group.size / group.on_host, 1);
  const double share = static_cast<double>(group.size - 1) / group.size;
  return {.hops_inside = rounds * (group.size - num_hosts),
          .hops_between = rounds * (num_hosts - 1),
          .bytes = rounds * share * bytes};
}

// Bytes that a rank takes from its neighbours, and from (and to) its counterparts on other hosts.
struct HostsParts {
  double inside = 0, crossing = 0;
};

HostsParts parts_of(double bytes, const comm::GroupShape& group) {
  const int num_hosts = std::max(group.size / group.on_host, 1);
  return {.inside = bytes * (group.on_host - 1) / group.on_host,
          .crossing = bytes * (num_hosts - 1) / num_hosts / group.on_host};
}

// Shared memory, to which a rank's neighbours write and from which it reads; between hosts, what
// one has and the other lacks, once. Both proceed at once, piece by piece, so the slower one
// counts.
double seconds_between_hosts(double bytes, const comm::GroupShape& group, const Cluster& cluster) {
  const auto parts = parts_of(bytes, group);
  const double inside = parts.inside / cluster.inside.bandwidth;
  if (parts.crossing == 0) return cluster.inside.latency + inside;
  const int num_hops = group.size / group.on_host - 1;
  return num_hops * cluster.between.latency +
         std::max(inside, parts.crossing / cluster.between.bandwidth);
}

// Seconds in which the cores that also compute copy.
double seconds_copying(double bytes, const comm::GroupShape& group, const Cluster& cluster) {
  const auto parts = parts_of(bytes, group);
  const double sockets =
      cluster.socket_bandwidth > 0 ? parts.crossing / cluster.socket_bandwidth : 0;
  return parts.inside / cluster.inside.bandwidth + sockets;
}

bool sums_to_all(const Collective& call) {
  return call.operation == Operation::all_reduce ||
         (call.operation == Operation::reduce_scatter && call.slices == 1);
}

Ring ring_of(const Collective& call) {
  const auto bytes = static_cast<double>(call.bytes);
  Ring ring = ring_of(call.shape, bytes, sums_to_all(call) ? 2 : 1);
  // Fewer slices than ranks: replicas of a slice pass its sum on.
  if (call.operation == Operation::reduce_scatter && call.slices > 1) {
    const int replicas = call.shape.size / call.slices;
    ring.bytes += bytes * (replicas - 1) / call.shape.size;
  }
  return ring;
}

}  // namespace

LinkLevel level_of(const comm::GroupShape& group) {
  if (group.size <= 1) return LinkLevel::none;
  return group.on_host >= group.size ? LinkLevel::inside : LinkLevel::between;
}

double seconds_of(const Collective& call, const Cluster& cluster) {
  const auto& group = call.shape;
  const auto bytes = static_cast<double>(call.bytes);
  if (level_of(group) == LinkLevel::none) return 0;
  if (cluster.collectives == CollectiveAlgorithm::hosts) {
    return (sums_to_all(call) ? 2 : 1) * seconds_between_hosts(bytes, group, cluster);
  }
  const double ring = ring_seconds(ring_of(call), group, cluster);
  return sums_to_all(call) ? std::min(ring, tree_seconds(bytes, group, cluster)) : ring;
}

SentBytes sent_bytes(const Collective& call) {
  const LinkLevel level = level_of(call.shape);
  if (level == LinkLevel::none) return {};
  const double bytes = ring_of(call).bytes;
  return {.all = bytes,
          .between_hosts = level == LinkLevel::between ? bytes / call.shape.on_host : 0};
}

double share_of(const Collective& call, const Cluster& cluster) {
  if (level_of(call.shape) == LinkLevel::none) return 0;
  if (cluster.collectives == CollectiveAlgorithm::nccl) return kNcclShare;
  const auto bytes = static_cast<double>(call.bytes);
  return std::min(1.0, seconds_copying(bytes, call.shape, cluster) /
                           seconds_between_hosts(bytes, call.shape, cluster));
}

}  // namespace fullshard::simulation
