// SPDX-License-Identifier: Apache-2.0
// The store where ranks of two hosts meet, and a link between them that is cut.
#include <gtest/gtest.h>

#include <memory>

#include "expect_error.h"
#include "fullshard/comm/store/rendezvous.h"
#include "fullshard/comm/store/store_client.h"
#include "fullshard/comm/store/store_server.h"
#include "tests/network_namespaces.h"

namespace fullshard::comm {
namespace {

using namespace std::chrono_literals;

// Slow: a host must be silent for some seconds.
TEST(StoreBehindACutLinkSlow, IsSaidToBeUnreachableAndTellsWhomItLost) {
  const testing::TwoNamespaces spaces;
  if (!spaces.problem().empty()) GTEST_SKIP() << spaces.problem();
  std::shared_ptr<StoreServer> server;
  std::unique_ptr<StoreClient> here, beyond, silent;
  ASSERT_TRUE(testing::on_host(spaces.first(), [&] {
    server = StoreServer::open(0, /*loopback=*/false, "a token", 2);
    here = std::make_unique<StoreClient>(StorePlace{"127.0.0.1", server->port(), "a token", 60s});
  }));
  const StorePlace place{testing::TwoNamespaces::kFirstAddress, server->port(), "a token", 60s};
  ASSERT_TRUE(testing::on_host(spaces.second(), [&] {
    beyond = std::make_unique<StoreClient>(place);
    silent = std::make_unique<StoreClient>(place);
    StoreClient leaves(place);
    leaves.set_when_lost("left", "well");
  }));
  silent->set_when_lost("lost", "silent");
  EXPECT_FALSE(here->has({"lost"}));
  spaces.cut();
  // It waits for keys, with a limit that is longer than the network may be silent.
  EXPECT_EQ(error_of([&] { beyond->wait({"never"}, 10min); }),
            "rendezvous: the host that serves the store, 10.213.77.1, cannot be reached; the "
            "network to it is cut or too slow");
  EXPECT_THROW(beyond->find("lost"), StoreUnreachable) << "and so are all later calls";
  EXPECT_THROW(beyond->another(), StoreUnreachable);
  ASSERT_TRUE(here->wait({"lost"}, 10min)) << "nothing was sent over that connection";
  EXPECT_EQ(here->find("lost"), "silent");
  EXPECT_FALSE(here->has({"left"})) << "an orderly end is no loss";
}

}  // namespace
}  // namespace fullshard::comm
