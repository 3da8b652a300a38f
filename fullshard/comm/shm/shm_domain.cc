// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_domain.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/shm/shm_backend.h"
#include "fullshard/comm/shm/shm_exchange.h"

namespace fullshard::comm {
namespace {

class Domain final : public ShmDomain {
 public:
  explicit Domain(std::shared_ptr<ShmRank> rank, ShmDescriptor held = {})
      : rank_(std::move(rank)), held_(std::move(held)) {}
  // A rank whose thread or process goes on without its world is gone for the others.
  ~Domain() override { leave(""); }

  std::shared_ptr<Backend> make_backend(const std::vector<std::vector<int>>& groups,
                                        const std::string& name) override;
  void leave(const std::string& reason) noexcept override { rank_->watch().leave(reason); }
  void ask_outside(ShmWatch::AskOutside ask) override {
    rank_->watch().ask_outside(std::move(ask));
  }
  void enter_beyond() noexcept override { rank_->watch().enter_beyond(); }
  void leave_beyond() noexcept override { rank_->watch().leave_beyond(); }

 private:
  std::shared_ptr<ShmRank> rank_;
  ShmDescriptor held_;  // the end of the lifeline that only this process keeps
  int num_backends_ = 0;
};

void check_group_count(const std::vector<std::vector<int>>& groups, int size,
                       const std::string& name) {
  std::set<int> seen;
  size_t total = 0;
  for (const auto& group : groups) {
    seen.insert(group.begin(), group.end());
    total += group.size();
  }
  const bool covers = !seen.empty() && *seen.begin() == 0 && *seen.rbegin() == size - 1;
  check(covers && total == seen.size() && static_cast<int>(total) == size,
        "shm: the groups '{}' hold {} ranks, expected each of the {} ranks once", name, total,
        size);
}

std::shared_ptr<Backend> Domain::make_backend(const std::vector<std::vector<int>>& groups,
                                              const std::string& name) {
  check_group_count(groups, rank_->size(), name);
  const auto& memory = rank_->memory();
  check(num_backends_ < kMaxBackends, "shm: more than {} groups of ranks were made", kMaxBackends);
  Claim& claim = memory->block().backends[num_backends_++];
  const auto block_of = [](const std::vector<int>& ranks) {
    return ShmGroup::block_bytes(static_cast<int>(ranks.size()));
  };
  int64_t bytes = 0;
  for (const auto& ranks : groups) bytes += block_of(ranks);
  int64_t offset = memory->take(claim, bytes, name.c_str());
  for (const auto& ranks : groups) {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_->rank());
    if (own != ranks.end()) {
      auto group = std::make_shared<ShmGroup>(memory, offset, ranks,
                                              static_cast<int>(own - ranks.begin()), name);
      return std::make_shared<ShmBackend>(rank_, std::move(group));
    }
    offset += block_of(ranks);
  }
  fail("shm: rank {} is in no group of '{}'", rank_->rank(), name);
}

void check_size(int size) {
  check(size >= 1 && size <= kMaxRanks, "shm: {} ranks on one host, expected 1 to {}", size,
        kMaxRanks);
}

}  // namespace

std::vector<std::shared_ptr<ShmDomain>> ShmDomain::for_threads(int size, const Timeouts& timeouts,
                                                               const std::vector<int>& names) {
  check_size(size);
  std::vector<std::shared_ptr<ShmMapping>> arenas;
  const int64_t bytes = shm_arena_bytes(size);
  for (int rank = 0; rank < size; ++rank) {
    arenas.push_back(ShmMapping::for_threads(bytes, PageSize::huge));
  }
  auto common = ShmMapping::for_threads(2 * bytes, PageSize::normal);
  auto memory = std::make_shared<const ShmMemory>(std::move(arenas), std::move(common));
  std::vector<std::shared_ptr<ShmDomain>> domains;
  for (int rank = 0; rank < size; ++rank) {
    auto self =
        std::make_shared<ShmRank>(memory, rank, timeouts, std::vector<ShmDescriptor>(), names);
    domains.push_back(std::make_shared<Domain>(std::move(self)));
  }
  return domains;
}

std::shared_ptr<ShmDomain> ShmDomain::join(Rendezvous& rendezvous, int rank, int size,
                                           const Timeouts& timeouts,
                                           const std::vector<int>& names) {
  check_size(size);
  const int64_t bytes = shm_arena_bytes(size);
  const auto owner = [&](int of) { return fmt::format("rank {}", names.empty() ? of : names[of]); };
  auto arena = ShmMapping::create(bytes, owner(rank));
  auto common = rank == 0 ? ShmMapping::create(2 * bytes, "all ranks") : nullptr;
  Lifeline lifeline = Lifeline::of_this_process();
  const ShmOffer own{arena->descriptor(), lifeline.watched.get(),
                     common ? common->descriptor() : -1};
  ShmPeers peers = exchange_descriptors(rendezvous, rank, size, own, timeouts.init, names);

  std::vector<std::shared_ptr<ShmMapping>> arenas(size);
  for (int peer = 0; peer < size; ++peer) {
    arenas[peer] =
        peer == rank ? arena : ShmMapping::adopt(std::move(peers.arenas[peer]), owner(peer));
    arenas[peer]->close_descriptor();
  }
  if (!common) common = ShmMapping::adopt(std::move(peers.common), "all ranks");
  common->close_descriptor();
  auto memory = std::make_shared<const ShmMemory>(std::move(arenas), std::move(common));
  auto self = std::make_shared<ShmRank>(memory, rank, timeouts, std::move(peers.lifelines), names);
  return std::make_shared<Domain>(std::move(self), std::move(lifeline.held));
}

}  // namespace fullshard::comm
