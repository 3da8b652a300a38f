// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/shared_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/host_name.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/checkpoint/save_plan.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/replace_file.h"

namespace fullshard::checkpoint {
namespace {

using std::chrono::steady_clock;

constexpr const char* kLook = "the look for a shared disk";

// Another job's is not ours.
std::string new_mark() {
  std::random_device random;
  return fmt::format("shared-{:08x}{:08x}", random(), random());
}

bool comes_to_be(const std::string& path, std::chrono::milliseconds patience) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
  const auto end = steady_clock::now() + patience;
  while (!base::is_file(path)) {
    if (steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

// One of each host: what it sees, the others there see too.
bool looks_for_host(const Mesh& mesh) {
  const Writers writers(mesh, /*is_node_local=*/false);
  const World& world = mesh.world();
  const int host = world.host_of(world.rank());
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.host_of(rank) == host && writers.writes_shard(rank)) return rank == world.rank();
  }
  return false;
}

}  // namespace

void check_folder_is_shared(const std::string& folder, const ShardedModel& model,
                            std::chrono::milliseconds patience) {
  const Mesh& mesh = model.mesh();
  if (mesh.world().num_hosts() == 1 || engine::is_alone(mesh.everyone())) return;
  const Communicator everyone = patient_ranks(mesh);
  const bool is_first = everyone.rank() == 0;
  std::string mark = is_first ? new_mark() : "";
  mark = engine::gather_texts(everyone, mark, kLook)[0];
  const std::string path = folder + "/" + mark;
  engine::throw_alike(everyone,
                      is_first ? engine::error_of([&] {
                        formats::make_folder_tree(folder);
                        formats::replace_file(path, "");
                      })
                               : std::nullopt,
                      kLook);
  const bool is_missing = looks_for_host(mesh) && !comes_to_be(path, patience);
  const auto hosts = engine::gather_texts(everyone, is_missing ? base::host_name() : "", kLook);
  if (is_first) ::unlink(path.c_str());
  std::vector<std::string> without;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (!hosts[rank].empty())
      without.push_back(fmt::format("rank {} on host {}", rank, hosts[rank]));
  }
  if (without.empty()) return;
  fail_as(ErrorKind::usage,
          "{}: rank 0 writes there, and {} would too, but on another disk; save where all hosts "
          "see the same disk, or on every host's own (--node-local, "
          "CheckpointOptions::is_node_local)",
          folder, fmt::join(without, ", "));
}

}  // namespace fullshard::checkpoint
