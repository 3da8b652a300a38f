// SPDX-License-Identifier: Apache-2.0
// What the host's backends know of ranks that talk over a link beside them.
#include "fullshard/comm/link_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <latch>

#include "cut_off_store.h"
#include "expect_error.h"
#include "fullshard/comm/gloo/gloo_link_peers.h"
#include "fullshard/comm/gloo/gloo_transport.h"
#include "fullshard/comm/shm/shm_domain.h"
#include "shm_ranks.h"

namespace fullshard::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const LinkCall kGather(
    {.sequence = 7, .operation = Operation::all_gather, .group = "shards", .unit = "blocks.2"}, 3);
const std::string kSubject = "rank 0: all_gather of blocks.2 (group shards, sequence 7) ";
const milliseconds kLimit = Timeouts{}.step;

// Two ranks, each with a backend over the same host; `body` runs on a thread of each.
class LinkPeersOver : public ::testing::TestWithParam<const char*> {
 protected:
  using Body = std::function<void(int rank, Backend& backend, LinkPeers& peers)>;

  void play(const Body& body) {
    const std::string kind = GetParam();
    const auto domains = ShmDomain::for_threads(2, {});
    const auto store = make_thread_store();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        std::shared_ptr<Transport> gloo;
        std::shared_ptr<Backend> backend;
        if (kind == "gloo") {
          gloo = make_gloo_transport(
              {.rank = rank, .hosts = {0, 1}, .loopback = true, .device = {.address = "127.0.0.1"}},
              store, std::make_shared<Recorder>(rank));
          backend = gloo->make_backend({{0, 1}}, "shards");
        } else {
          backend = domains[static_cast<size_t>(rank)]->make_backend({{0, 1}}, "shards");
        }
        leave_[rank] = [&, rank](const std::string& reason) {
          gloo ? gloo->leave(reason) : domains[static_cast<size_t>(rank)]->leave(reason);
        };
        body(rank, *backend, *backend->make_link_peers());
        finished_.arrive_and_wait();
      });
    }
    for (auto& thread : threads) thread.join();
  }

  std::array<std::function<void(const std::string&)>, 2> leave_;
  std::latch ready_{2}, finished_{2};
};

TEST_P(LinkPeersOver, HaveNothingToSayWhileAllComeInTime) {
  play([&](int, Backend&, LinkPeers& peers) {
    peers.note(kGather);
    ready_.arrive_and_wait();
    peers.look(kGather, milliseconds(1500));
  });
}

TEST_P(LinkPeersOver, NameTheRankThatDoesNotComeWithinTheLimit) {
  play([&](int rank, Backend&, LinkPeers& peers) {
    if (rank == 0) peers.note(kGather);
    ready_.arrive_and_wait();
    if (rank != 0) return;
    const std::string text = error_of([&] { peers.look(kGather, kLimit); });
    EXPECT_THAT(text, StartsWith(kSubject + "waits for rank 1, which has not come for 600 s (step "
                                            "timeout); "));
    EXPECT_THAT(text, HasSubstr("raise timeouts.step (--step-timeout) if it is only slow"));
  });
}

TEST_P(LinkPeersOver, KeepTheLimitOfTheCall) {
  play([&](int rank, Backend&, LinkPeers& peers) {
    LinkCall save = kGather, start = kGather;
    save.limit = TimeLimit::checkpoint;
    start.limit = TimeLimit::init;
    if (rank == 0) peers.note(save);
    ready_.arrive_and_wait();
    if (rank != 0) return;
    peers.look(save, kLimit);
    EXPECT_THAT(error_of([&] { peers.look(start, Timeouts{}.init); }),
                HasSubstr("raise timeouts.init (--init-timeout) if it is only slow"));
  });
}

// The network or a GPU is at fault then, and no rank is to blame.
TEST_P(LinkPeersOver, BlameNobodyWhenAllHaveCome) {
  play([&](int rank, Backend& backend, LinkPeers& peers) {
    peers.note(kGather);
    backend.barrier({.sequence = 1, .group = "shards", .unit = {}});
    if (rank != 0) return;
    EXPECT_EQ(error_of([&] { peers.look(kGather, kLimit); }),
              kSubject +
                  "has not ended after 600 s (step timeout), although all ranks have come "
                  "to it; raise timeouts.step (--step-timeout) if it is only slow");
  });
}

TEST_P(LinkPeersOver, NameTheRankThatFailed) {
  play([&](int rank, Backend&, LinkPeers& peers) {
    peers.note(kGather);
    ready_.arrive_and_wait();
    if (rank == 1) return leave_[1]("no more memory");
    EXPECT_THAT(error_of([&] {
                  // A failure travels: over gloo it takes a beat.
                  while (true) peers.look(kGather, milliseconds(1500));
                }),
                StartsWith(kSubject + "waits for rank 1, which failed: no more memory; "));
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, LinkPeersOver, ::testing::Values("shm", "gloo"));

// Whoever looks watches other calls too, and is to say that the host is gone.
TEST(LinkPeers, OfGlooDoNotAskAStoreThatIsSilent) {
  const StoreLines lines;
  const auto store = std::make_shared<CutOffStore>(make_thread_store(), lines);
  const auto watch = std::make_shared<GlooWatch>(store, 1, 2, std::make_shared<Recorder>(1));
  GlooLinkPeers peers({.group = "shards", .rank = 1, .ranks = {0, 1}, .hosts = {0, 1}}, watch, {});
  lines.become(StoreLine::State::silent);
  while (watch->is_store_answering()) std::this_thread::yield();
  auto look = std::async(std::launch::async, [&] { peers.look(kGather, kLateAfter); });
  EXPECT_EQ(look.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  lines.become(StoreLine::State::answers);
  look.get();
}

TEST(LinkPeers, OfShmDoNotMissARankThatCameAndEndedWell) {
  const auto domains = ShmDomain::for_threads(2, {});
  const auto zero = domains[0]->make_backend({{0, 1}}, "shards");
  const auto one = domains[1]->make_backend({{0, 1}}, "shards");
  const auto peers = zero->make_link_peers(), others = one->make_link_peers();
  peers->note(kGather);
  others->note(kGather);
  domains[1]->leave("");
  peers->look(kGather, milliseconds(1500));
  LinkCall next = kGather;
  ++next.number;
  peers->note(next);
  EXPECT_THAT(error_of([&] { peers->look(next, milliseconds(1500)); }),
              StartsWith(kSubject + "waits for rank 1, which has left; "));
}

}  // namespace
}  // namespace fullshard::comm
