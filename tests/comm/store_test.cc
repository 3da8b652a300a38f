// SPDX-License-Identifier: Apache-2.0
// The store where ranks meet, with and without strangers.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <latch>
#include <thread>
#include <utility>

#include "expect_error.h"
#include "fullshard/comm/store/rendezvous.h"
#include "fullshard/comm/store/store_client.h"
#include "fullshard/comm/store/store_protocol.h"
#include "fullshard/comm/store/store_server.h"
#include "fullshard/comm/store/tcp_connect.h"

namespace fullshard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr const char* kToken = "a token";

class StoreOfRanks : public ::testing::Test {
 protected:
  StorePlace place(const std::string& token = kToken) const {
    return {"127.0.0.1", server_->port(), token, 60s};
  }
  std::shared_ptr<StoreServer> server_ = StoreServer::open(0, /*loopback=*/true, kToken);
};

// Speaks bytes of its own choice.
class Stranger {
 public:
  explicit Stranger(int port) : socket_(connect_tcp("127.0.0.1", port, 60s)) {}
  ~Stranger() { ::close(socket_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void say(const std::string& bytes) const {
    ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  std::string hear(size_t bytes) const {
    std::string text(bytes, '\0');
    const ssize_t got = ::recv(socket_, text.data(), bytes, MSG_WAITALL);
    return text.substr(0, got > 0 ? static_cast<size_t>(got) : 0);
  }
  // All that comes until the other side closes.
  std::string hear_all() const {
    std::string text;
    for (std::string piece; !(piece = hear(1)).empty();) text += piece;
    return text;
  }

 private:
  int socket_;
};

constexpr size_t kGreeting = 8 + sizeof(StoreNonce);

TEST_F(StoreOfRanks, KeepsValues) {
  StoreClient one(place()), other(place());
  EXPECT_EQ(one.find("key"), std::nullopt);
  one.set("key", std::string("with\0zero", 9));
  EXPECT_EQ(other.find("key"), std::string("with\0zero", 9));
  EXPECT_EQ(other.compare_set("first", "", "one"), "one");
  EXPECT_EQ(one.compare_set("first", "", "two"), "one");
  EXPECT_EQ(one.compare_set("first", "one", "three"), "three");
  EXPECT_EQ(one.add("sum", 5), 5);
  EXPECT_EQ(other.add("sum", -2), 3);
  EXPECT_TRUE(one.has({"key", "sum"}));
  EXPECT_FALSE(one.has({"key", "nothing"}));
  using Values = std::vector<std::optional<std::string>>;
  EXPECT_EQ(other.find_all({"sum", "nothing", "first"}), (Values{"3", std::nullopt, "three"}));
  EXPECT_EQ(other.find_all({}), Values{});
  EXPECT_EQ(one.count(), 3);
  EXPECT_TRUE(one.remove("key"));
  EXPECT_FALSE(one.remove("key"));
}

TEST_F(StoreOfRanks, KeepsLargeValues) {
  StoreClient client(place());
  const std::string large(3 << 20, 'x');
  client.set("large", large);
  EXPECT_EQ(client.find("large"), large);
}

TEST_F(StoreOfRanks, AnswersWhoWaitsWhenTheLastKeyComes) {
  StoreClient waiter(place()), writer(place());
  std::atomic<bool> came = false;
  std::thread thread([&] { came = waiter.wait({"a", "b"}, 20s); });
  writer.set("a", "");
  EXPECT_FALSE(came);
  writer.set("b", "");
  thread.join();
  EXPECT_TRUE(came);
  EXPECT_FALSE(waiter.wait({"never"}, 20ms));
}

TEST_F(StoreOfRanks, SaysWhenTheServerIsGone) {
  StoreClient client(place());
  server_.reset();
  EXPECT_EQ(error_of([&] { client.set("key", "value"); }),
            "rendezvous: the store does not answer; the process that serves it has ended");
}

TEST_F(StoreOfRanks, IsSharedByTheWorldsOfAProcess) {
  EXPECT_EQ(StoreServer::open(server_->port(), true, kToken), server_);
  EXPECT_THAT(error_of([&] { StoreServer::open(server_->port(), true, "another token"); }),
              HasSubstr("cannot listen on port " + std::to_string(server_->port()) +
                        " (Address already in use)"));
}

TEST_F(StoreOfRanks, RefusesAWrongToken) {
  for (const std::string wrong : {"", "another token", "a toke", "a token "}) {
    EXPECT_EQ(error_of([&] { StoreClient client(place(wrong)); }),
              "world: the store at 127.0.0.1:" + std::to_string(server_->port()) +
                  " belongs to another job, or this rank has another token; set "
                  "FULLSHARD_JOB_SECRET to the same on all ranks");
  }
}

TEST_F(StoreOfRanks, TellsAStrangerNothing) {
  StoreClient rank(place());
  rank.set("fullshard/secret", "value");
  const std::string get = StoreWriter()
                              .number(static_cast<int64_t>(StoreRequest::get))
                              .text("fullshard/secret")
                              .message();
  const std::string set = StoreWriter()
                              .number(static_cast<int64_t>(StoreRequest::set))
                              .text("fullshard/secret")
                              .text("forged")
                              .message();
  // Requests at once, after a proof without the token, and what a client of c10d would say first.
  const std::string nobody(sizeof(StoreNonce) + kStoreClaimBytes, 'x');
  for (const std::string& words :
       {get + get + get + get, set + set, nobody + set + get,
        std::string("\x03\x3c\x85\xf7\x3c", 5) + std::string(64, '\0')}) {
    const Stranger stranger(server_->port());
    stranger.say(words);
    EXPECT_EQ(stranger.hear_all().substr(kGreeting), kStoreRefusal);
  }
  EXPECT_EQ(rank.find("fullshard/secret"), "value");
}

// What a rank says that was greeted so.
std::string introduction_after(const std::string& greeting) {
  StoreNonce nonce;
  std::memcpy(nonce.data(), greeting.data() + 8, nonce.size());
  const StoreNonce own = make_store_nonce();
  return std::string(own.begin(), own.end()) + client_claim(kToken, nonce, own, /*restart=*/0);
}

TEST_F(StoreOfRanks, DoesNotAcceptAProofTwice) {
  const Stranger first(server_->port());
  const std::string introduction = introduction_after(first.hear(kGreeting));
  first.say(introduction);
  EXPECT_EQ(first.hear(kStoreClaimBytes).size(), kStoreClaimBytes);
  const Stranger second(server_->port());
  second.say(introduction);
  EXPECT_EQ(second.hear_all().substr(kGreeting), kStoreRefusal);
}

// A claim of a restart is proved with the rest.
TEST_F(StoreOfRanks, DoesNotAcceptAProofForAnotherRestart) {
  const Stranger stranger(server_->port());
  std::string introduction = introduction_after(stranger.hear(kGreeting));
  ++introduction[sizeof(StoreNonce)];
  stranger.say(introduction);
  EXPECT_EQ(stranger.hear_all(), kStoreRefusal);
}

// Behind it and ahead of it: neither finds a key there, or leaves one.
TEST_F(StoreOfRanks, LetsNoRankOfAnotherRestartIn) {
  const auto ahead = StoreServer::open(0, /*loopback=*/true, kToken, 1, /*restart=*/2);
  for (const auto& [port, other] : {std::pair{server_->port(), 0}, {ahead->port(), 2}}) {
    EXPECT_EQ(error_of([port = port] {
                StoreClient({"127.0.0.1", port, kToken, 300ms, 1});
              }),
              fmt::format("world: the store at 127.0.0.1:{} is that of restart {}, but this rank "
                          "belongs to restart 1 and waited for its store for 0.3 s; see rank 0's "
                          "log, or raise timeouts.init (--init-timeout) if the launchers are only "
                          "slow to start the ranks again",
                          port, other));
  }
  EXPECT_EQ(StoreClient(place()).count(), 0);
}

// The rank of the restart comes while the store before it is still served.
TEST_F(StoreOfRanks, IsAwaitedByRanksThatCameBeforeTheOneOfAnEarlierStartHadEnded) {
  const int port = server_->port();
  EXPECT_THAT(error_of([&] {
                StoreClient({"127.0.0.1", port, kToken, 100ms, 1});
              }),
              HasSubstr("is that of restart 0"));
  std::thread rank([port] {
    StoreClient client({"127.0.0.1", port, kToken, 60s, 1});
    client.set("came", "");
    client.another()->set("another came", "");
  });
  server_.reset();
  server_ = StoreServer::open(port, /*loopback=*/true, kToken, 1, /*restart=*/1);
  rank.join();
  EXPECT_TRUE(StoreClient({"127.0.0.1", port, kToken, 60s, 1}).has({"came", "another came"}));
}

TEST_F(StoreOfRanks, IsNotKeptFromRanksByStrangersWhoOnlyStandThere) {
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int each = 0; each < 300; ++each) {
    crowd.push_back(std::make_unique<Stranger>(server_->port()));
  }
  StoreClient rank(place());
  rank.set("key", "value");
  EXPECT_EQ(rank.find("key"), "value");
}

// All of them stand at the door before the first one says who it is.
TEST(Store, LetsAllRanksInThatComeAtOnce) {
  constexpr int kRanks = 700;
  const auto server = StoreServer::open(0, /*loopback=*/true, kToken, kRanks);
  std::vector<std::unique_ptr<Stranger>> ranks;
  std::vector<std::string> introductions;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<Stranger>(server->port()));
    introductions.push_back(introduction_after(ranks.back()->hear(kGreeting)));
  }
  int let_in = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank]->say(introductions[rank]);
    const std::string answer = ranks[rank]->hear(kStoreClaimBytes);
    let_in += answer.size() == kStoreClaimBytes && answer != kStoreRefusal;
  }
  EXPECT_EQ(let_in, kRanks);
}

TEST(Store, CountsEachOfManyRanksThatJoinFromThreads) {
  constexpr int kRanks = 400;
  const auto server = StoreServer::open(0, /*loopback=*/true, kToken, kRanks);
  std::latch together(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&] {
      together.arrive_and_wait();
      StoreClient client({"127.0.0.1", server->port(), kToken, 60s});
      client.add("came", 1);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(StoreClient({"127.0.0.1", server->port(), kToken, 60s}).add("came", 0), kRanks);
}

// As many files as the system lets this process have.
size_t raise_file_limit() {
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  return files.rlim_cur;
}

// The process that serves may open 256 files, and 2,000 connections come before the rank's.
TEST(Store, LetsARankPastMoreStrangersThanItMayOpenFiles) {
  const size_t crowd_size = std::min<size_t>(2000, raise_file_limit() - 100);
  const std::string command =
      FULLSHARD_TEST_PROGRAMS "/comm_store_server 256 '" + std::string(kToken) + "'";
  std::FILE* output = ::popen(command.c_str(), "r");
  int port = 0;
  ASSERT_EQ(std::fscanf(output, "%d", &port), 1);
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (size_t each = 0; each < crowd_size; ++each) {
    crowd.push_back(std::make_unique<Stranger>(port));
  }
  const auto start = std::chrono::steady_clock::now();
  StoreClient rank({"127.0.0.1", port, kToken, 60s});
  rank.set("key", "value");
  EXPECT_EQ(rank.find("key"), "value");
  // Strangers are sent away for standing there after ten seconds; the rank must not wait for that.
  EXPECT_LT(std::chrono::steady_clock::now() - start, 8s);
  rank.set("done", "");
  EXPECT_EQ(::pclose(output), 0);
}

struct Listener {
  int socket;
  int port;
};

Listener listen_here() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(socket, 4), 0);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  return {socket, ntohs(address.sin_port)};
}

// Somebody else sits on the port and takes whatever it is told as right.
TEST(Store, IsNotGivenToWhoCannotProveItself) {
  const auto [listener, port] = listen_here();
  const StorePlace place{"127.0.0.1", port, kToken, 60s};
  for (const std::string greeting : {"HTTP/1.1 400 Bad Request", "fullshr20123456789abcdef"}) {
    std::thread liar([&] {
      const int guest = ::accept(listener, nullptr, nullptr);
      ::send(guest, greeting.data(), greeting.size(), MSG_NOSIGNAL);
      char buffer[sizeof(StoreNonce) + kStoreClaimBytes];
      if (greeting.starts_with("full")) ::recv(guest, buffer, sizeof buffer, MSG_WAITALL);
      const std::string claim(kStoreClaimBytes, 'y');
      ::send(guest, claim.data(), claim.size(), MSG_NOSIGNAL);
      ::close(guest);
    });
    EXPECT_THAT(error_of([&] { StoreClient client(place); }),
                HasSubstr(greeting.starts_with("full") ? "belongs to another job"
                                                       : "is not the ranks' store"));
    liar.join();
  }
  ::close(listener);
}

// The version before restarts were told, and one that is not known yet. What it says after its name
// may be longer or shorter.
TEST(Store, OfAnotherVersionIsNamed) {
  const auto [listener, port] = listen_here();
  for (const std::string greeting : {"fullshrd0123456789abcdef", "fullshr3"}) {
    std::thread server([&] {
      const int guest = ::accept(listener, nullptr, nullptr);
      ::send(guest, greeting.data(), greeting.size(), MSG_NOSIGNAL);
      char nothing = 0;
      EXPECT_LE(::recv(guest, &nothing, 1, 0), 0) << "it must not be told who knows the token";
      ::close(guest);
    });
    EXPECT_EQ(error_of([port = port] {
                StoreClient({"127.0.0.1", port, kToken, 60s});
              }),
              fmt::format("world: the store at 127.0.0.1:{} is that of another version of "
                          "Fullshard, which this rank cannot speak with; install the same version "
                          "on all hosts",
                          port));
    server.join();
  }
  ::close(listener);
}

// A server that drops a connection before its greeting, after it, and after the introduction; says
// to the fourth one that it belongs to another restart, and lets the fifth one in.
TEST(Store, IsAskedAgainByARankThatWasDropped) {
  const auto [listener, port] = listen_here();
  std::thread server([listener] {
    for (int come = 0; come < 5; ++come) {
      const int guest = ::accept(listener, nullptr, nullptr);
      const StoreNonce nonce = make_store_nonce();
      const std::string greeting =
          std::string(kStoreMagic) + std::string(nonce.begin(), nonce.end());
      if (come > 0) ::send(guest, greeting.data(), greeting.size(), MSG_NOSIGNAL);
      std::array<uint8_t, sizeof(StoreNonce) + kStoreClaimBytes> introduction{};
      if (come > 1) ::recv(guest, introduction.data(), introduction.size(), MSG_WAITALL);
      StoreNonce theirs;
      std::copy_n(introduction.begin(), theirs.size(), theirs.begin());
      const std::string claim = server_claim(kToken, nonce, theirs, /*restart=*/come);
      if (come > 2) ::send(guest, claim.data(), claim.size(), MSG_NOSIGNAL);
      ::close(guest);
    }
  });
  EXPECT_NO_THROW(StoreClient({"127.0.0.1", port, kToken, 60s, /*restart=*/4}));
  server.join();
  ::close(listener);
}

TEST(Store, SaysThatItDroppedARankToTheEnd) {
  const auto [listener, port] = listen_here();
  std::atomic<bool> stop = false;
  std::thread server([&stop, listener] {
    const std::string greeting = std::string(kStoreMagic) + std::string(16, 'n');
    while (!stop) {
      const int guest = ::accept(listener, nullptr, nullptr);
      ::send(guest, greeting.data(), greeting.size(), MSG_NOSIGNAL);
      ::close(guest);
    }
  });
  EXPECT_EQ(
      error_of([port] {
        StoreClient({"127.0.0.1", port, kToken, 500ms});
      }),
      fmt::format("world: the store at 127.0.0.1:{} dropped this rank's connections for 0.5 s; "
                  "see rank 0's log, or raise timeouts.init (--init-timeout) if it is only "
                  "overrun",
                  port));
  stop = true;
  const Stranger last(port);
  server.join();
  ::close(listener);
}

TEST(Store, ListensOnlyToThisHostWhereAllRanksAre) {
  const std::string outside = own_address_towards("192.0.2.1", 9);
  if (outside.empty()) GTEST_SKIP() << "this host has no address but loopback";
  const auto closed = StoreServer::open(0, /*loopback=*/true, kToken);
  EXPECT_THAT(error_of([&] { connect_tcp(outside, closed->port(), 50ms); }),
              HasSubstr("nobody answers at " + outside));
  const auto open = StoreServer::open(0, /*loopback=*/false, kToken);
  StoreClient rank({outside, open->port(), kToken, 60s});
  rank.set("key", "value");
  EXPECT_EQ(rank.find("key"), "value");
}

TEST(Store, SharesKeysUnderAPrefix) {
  const auto holder =
      connect_store({.host = "127.0.0.1", .token = kToken, .serve = true, .loopback = true}, 60s);
  const auto under = holder->under("group");
  under->set("key", "value");
  EXPECT_EQ(holder->find("group/key"), "value");
  EXPECT_EQ(under->another()->get("key", 1s, "rank 1"), "value");
  EXPECT_EQ(under->set_first("key", "later"), "value");
  EXPECT_EQ(error_of([&] { under->get("none", 10ms, "rank 1"); }),
            "rendezvous: rank 1 did not come within 0.01 s (key 'none')");
}

}  // namespace
}  // namespace fullshard::comm
