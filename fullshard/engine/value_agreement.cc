// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/value_agreement.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/engine/storage/value_hash.h"

namespace fullshard::engine {
namespace {

constexpr std::string_view kComparison = "the comparison of values";

// Every rank's numbers, in order of ranks.
std::vector<std::vector<uint64_t>> gather_numbers(const Communicator& everyone,
                                                  const std::vector<uint64_t>& own) {
  const auto count = static_cast<int64_t>(own.size());
  auto mine = at::empty({count}, at::kLong);
  std::copy(own.begin(), own.end(), mine.data_ptr<int64_t>());
  auto all = at::empty({everyone.size() * count}, at::kLong);
  everyone.all_gather(all, mine, kComparison).wait();
  std::vector<std::vector<uint64_t>> numbers;
  const auto* begin = all.const_data_ptr<int64_t>();
  for (int rank = 0; rank < everyone.size(); ++rank, begin += count) {
    numbers.emplace_back(begin, begin + count);
  }
  return numbers;
}

// The first rank of `rank`'s kind, with which it is compared.
int reference_of(int rank, const std::vector<int>& kinds) {
  return static_cast<int>(std::find(kinds.begin(), kinds.end(), kinds[rank]) - kinds.begin());
}

bool all_agree(const std::vector<std::vector<uint64_t>>& numbers, const std::vector<int>& kinds) {
  for (int rank = 0; rank < static_cast<int>(numbers.size()); ++rank) {
    if (numbers[rank] != numbers[reference_of(rank, kinds)]) return false;
  }
  return true;
}

std::string list_ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

void check_hashes_agree(const Communicator& everyone, const std::vector<HashedTensor>& own,
                        const std::vector<int>& kinds, std::string_view what,
                        std::string_view remedy) {
  std::vector<uint64_t> hashes;
  for (const auto& tensor : own) hashes.push_back(tensor.hash);
  if (all_agree(gather_numbers(everyone, {hash_numbers(hashes)}), kinds)) return;
  const auto all = gather_numbers(everyone, hashes);
  for (size_t i = 0; i < own.size(); ++i) {
    std::vector<int> others;
    int reference = -1;
    for (int rank = 0; rank < everyone.size(); ++rank) {
      const int first = reference_of(rank, kinds);
      if (all[rank][i] == all[first][i] || (reference >= 0 && first != reference)) continue;
      reference = first;
      others.push_back(rank);
    }
    if (others.empty()) continue;
    fail("{}: {} has other values on {} than on rank {}; {}", what, own[i].name, list_ranks(others),
         reference, remedy);
  }
}

void check_values_agree(const Communicator& everyone, const WrapPlan& plan) {
  if (is_alone(everyone)) return;
  std::vector<HashedTensor> own;
  for (const auto& unit : plan.units) {
    for (const auto& parameter : unit.parameters) {
      if (parameter.tensor.is_meta()) continue;
      own.push_back(
          {fmt::format("parameter '{}'", parameter.names.front()), hash_values(parameter.tensor)});
    }
    for (const auto& buffer : unit.buffers) {
      if (buffer.tensor.is_meta()) continue;
      own.push_back({fmt::format("buffer '{}'", buffer.name), hash_values(buffer.tensor)});
    }
  }
  check_hashes_agree(everyone, own, std::vector<int>(everyone.size(), 0), "shard",
                     "build the same values on every rank (torch::manual_seed with the same number "
                     "before the model is made), or leave ShardOptions::sync_module_states true to "
                     "take rank 0's");
}

void check_replicas_agree(const Engine& engine, std::string_view what) {
  const auto& mesh = engine.mesh();
  if (mesh.num_replicas() == 1 || is_alone(mesh.everyone())) return;
  std::vector<HashedTensor> own;
  for (const auto& unit : engine.units()) {
    for (const auto& group : unit->groups()) {
      const size_t first = own.size();
      for (const auto& slot : group->layout().slots()) {
        own.push_back({fmt::format("parameter '{}'", slot.name)});
      }
      for (const auto& piece : group->pieces()) {
        own[first + static_cast<size_t>(piece.slot)].hash = hash_values(group->master(piece));
      }
    }
  }
  std::vector<int> shards;
  for (int rank = 0; rank < mesh.world().size(); ++rank) shards.push_back(mesh.shard_of(rank));
  check_hashes_agree(mesh.everyone(), own, shards, what,
                     "ranks that hold the same shard must read the same files, and draw from the "
                     "same seed");
}

}  // namespace fullshard::engine
