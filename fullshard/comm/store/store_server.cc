// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/store/store_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/base/tcp_socket.h"
#include "fullshard/comm/store/rendezvous.h"
#include "fullshard/comm/store/store_keys.h"
#include "fullshard/comm/store/store_protocol.h"

namespace fullshard::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A stranger may hold a connection so long, and so many of them at a time: besides the ranks, who
// are strangers until they have shown the token, each with two connections; fewer where the process
// may open few files, since its ranks and checkpoints need them.
constexpr auto kStrangerPatience = std::chrono::seconds(10);
constexpr size_t kMostStrangers = 256;
constexpr size_t kConnectionsPerRank = 2;
constexpr size_t kFilesPerStranger = 4;
// So many come in before those who have spoken are heard.
constexpr int kMostAtOnce = 32;
constexpr int kPauseWithoutFiles = 50;  // ms
constexpr size_t kIntroduction = sizeof(StoreNonce) + kStoreClaimBytes;

size_t most_strangers(int ranks) {
  const size_t most = kMostStrangers + kConnectionsPerRank * static_cast<size_t>(ranks);
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) {
    return most;
  }
  return std::clamp<size_t>(files.rlim_cur / kFilesPerStranger, 1, most);
}

int port_of(int socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

// One rank's connection, or a stranger's.
struct Guest {
  int socket = -1;
  StoreNonce nonce = make_store_nonce();
  Clock::time_point arrived = Clock::now();
  bool is_known = false;  // has shown that it knows the token
  std::string received, unsent;
  std::vector<std::string>
      awaited;  // keys; the answer comes when all are there, or at the deadline
  Clock::time_point deadline;
  bool is_lost = false;                  // its host cannot be reached
  std::string key_when_lost, when_lost;  // to be set then; no key: nothing

  explicit Guest(int accepted) : socket(accepted) {}
  ~Guest() { ::close(socket); }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;
};

}  // namespace

class StoreServer::Impl {
 public:
  Impl(int port, bool loopback, std::string token, int ranks, int restart)
      : token_(std::move(token)),
        restart_(restart),
        listener_(base::listen_tcp(port, loopback)),
        most_strangers_(most_strangers(ranks)) {
    check(listener_ >= 0,
          "world: rank 0 cannot listen on port {} ({}); choose a free one with "
          "MASTER_PORT",
          port, std::strerror(errno));
    port_ = port_of(listener_);
    stop_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_, &one, sizeof one);
    thread_.join();
    ::close(stop_);
    ::close(listener_);
  }

  int port() const { return port_; }
  bool is_for(const std::string& token, int restart) const {
    return token_ == token && restart_ == restart;
  }
  // Of a world that comes later to the same server.
  void expect(int ranks) {
    most_strangers_ = std::max(most_strangers_.load(), most_strangers(ranks));
  }

 private:
  void run() {
    for (;;) {
      // Without a file to spare the listener would only say so again and again.
      const short wanted = has_files_ ? POLLIN : 0;
      std::vector<pollfd> watched = {{stop_, POLLIN, 0}, {listener_, wanted, 0}};
      for (const Guest& guest : guests_) {
        const int events = POLLIN | (guest.unsent.empty() ? 0 : POLLOUT);
        watched.push_back({guest.socket, static_cast<short>(events), 0});
      }
      ::poll(watched.data(), watched.size(), patience());
      has_files_ = true;
      if (watched[0].revents != 0) return;
      size_t place = 2;
      std::erase_if(guests_, [&](Guest& guest) {
        const bool goes = watched[place++].revents != 0 && !serve(guest);
        if (goes) tell_loss(guest);
        return goes;
      });
      if (watched[1].revents != 0) welcome();
      answer_awaited();
      dismiss_strangers();
    }
  }

  // Milliseconds to the next deadline.
  int patience() const {
    auto until = Clock::now() + std::chrono::seconds(60);
    for (const Guest& guest : guests_) {
      if (!guest.is_known) until = std::min(until, guest.arrived + kStrangerPatience);
      if (!guest.awaited.empty()) until = std::min(until, guest.deadline);
    }
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    const int most = has_files_ ? std::numeric_limits<int>::max() : kPauseWithoutFiles;
    return static_cast<int>(std::clamp<int64_t>(left.count(), 0, most));
  }

  // Some of those who stand at the door; the others at the next look.
  void welcome() {
    for (int come = 0; come < kMostAtOnce; ++come) {
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (socket < 0) {
        const bool lacks_files = errno == EMFILE || errno == ENFILE;
        if (lacks_files) has_files_ = dismiss_oldest_stranger();
        return;
      }
      const int yes = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      base::end_when_unreachable(socket, kHostSilence);
      Guest& guest = guests_.emplace_back(socket);
      guest.unsent = kStoreMagic;
      guest.unsent.append(guest.nonce.begin(), guest.nonce.end());
      send(guest);
    }
  }

  // False when the connection is over.
  bool serve(Guest& guest) {
    char buffer[65536];
    const ssize_t got = ::recv(guest.socket, buffer, sizeof buffer, 0);
    if (got < 0) guest.is_lost = base::means_unreachable(errno);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got > 0) guest.received.append(buffer, static_cast<size_t>(got));
    try {
      if (!guest.is_known && !introduce(guest)) return false;
      while (guest.is_known && answer_next(guest)) {
      }
    } catch (const std::exception&) {  // nonsense from somebody who knows the token
      return false;
    }
    return send(guest);
  }

  void tell_loss(const Guest& guest) {
    if (!guest.is_lost || guest.key_when_lost.empty()) return;
    keys_.compare_set(guest.key_when_lost, "", guest.when_lost);
  }

  // False when it has shown not to know the token, or to belong to another restart.
  bool introduce(Guest& guest) {
    if (guest.received.size() < kIntroduction) return true;
    StoreNonce nonce;
    std::memcpy(nonce.data(), guest.received.data(), nonce.size());
    const std::string claim = guest.received.substr(nonce.size(), kStoreClaimBytes);
    guest.received.erase(0, kIntroduction);
    const int restart = restart_in(claim);
    const bool knows = is_claim(claim, client_claim(token_, guest.nonce, nonce, restart));
    guest.is_known = knows && restart == restart_;
    guest.unsent +=
        knows ? server_claim(token_, guest.nonce, nonce, restart_) : std::string(kStoreRefusal);
    if (!guest.is_known) send(guest);
    return guest.is_known;
  }

  // True when a whole request was there.
  bool answer_next(Guest& guest) {
    if (guest.received.size() < kStoreLengthBytes) return false;
    const size_t length = store_message_length(guest.received);
    if (guest.received.size() < kStoreLengthBytes + length) return false;
    StoreReader request(std::string_view(guest.received).substr(kStoreLengthBytes, length));
    if (const auto answer = answer_to(request, guest)) guest.unsent += answer->message();
    guest.received.erase(0, kStoreLengthBytes + length);
    return true;
  }

  // Nothing yet for one who waits.
  std::optional<StoreWriter> answer_to(StoreReader& request, Guest& guest) {
    const auto kind = static_cast<StoreRequest>(request.number());
    if (kind == StoreRequest::count) return StoreWriter().number(keys_.count());
    if (kind == StoreRequest::has || kind == StoreRequest::wait) {
      const auto limit = milliseconds(request.number());
      std::vector<std::string> keys = request.keys();
      const bool are_there = keys_.has(keys);
      if (are_there || kind == StoreRequest::has) return StoreWriter().number(are_there);
      guest.awaited = std::move(keys);
      guest.deadline = Clock::now() + limit;
      return std::nullopt;
    }
    if (kind == StoreRequest::get_all) return values_of(request.keys());
    const std::string key = request.text();
    switch (kind) {
      case StoreRequest::set:
        keys_.set(key, request.text());
        return StoreWriter().number(1);
      case StoreRequest::get: {
        const auto value = keys_.find(key);
        return StoreWriter().number(value.has_value()).text(value.value_or(""));
      }
      case StoreRequest::compare_set: {
        const std::string expected = request.text();
        return StoreWriter().text(keys_.compare_set(key, expected, request.text()));
      }
      case StoreRequest::set_when_lost:
        guest.key_when_lost = key;
        guest.when_lost = request.text();
        return StoreWriter().number(1);
      case StoreRequest::add:
        return StoreWriter().number(keys_.add(key, request.number()));
      default:
        return StoreWriter().number(keys_.remove(key));
    }
  }

  StoreWriter values_of(const std::vector<std::string>& keys) const {
    StoreWriter answer;
    for (const std::string& key : keys) {
      const auto value = keys_.find(key);
      answer.number(value.has_value());
      if (value) answer.text(*value);
    }
    return answer;
  }

  void answer_awaited() {
    const auto now = Clock::now();
    std::erase_if(guests_, [&](Guest& guest) {
      if (guest.awaited.empty()) return false;
      const bool are_there = keys_.has(guest.awaited);
      if (!are_there && now < guest.deadline) return false;
      guest.awaited.clear();
      guest.unsent += StoreWriter().number(are_there).message();
      const bool goes = !send(guest);
      if (goes) tell_loss(guest);
      return goes;
    });
  }

  // False when there is none.
  bool dismiss_oldest_stranger() {
    const auto oldest = std::find_if(guests_.begin(), guests_.end(),
                                     [](const Guest& guest) { return !guest.is_known; });
    if (oldest == guests_.end()) return false;
    guests_.erase(oldest);
    return true;
  }

  void dismiss_strangers() {
    const auto now = Clock::now();
    size_t strangers = 0;
    for (const Guest& guest : guests_) strangers += !guest.is_known;
    std::erase_if(guests_, [&](const Guest& guest) {  // the oldest stand first
      const bool goes = !guest.is_known &&
                        (now >= guest.arrived + kStrangerPatience || strangers > most_strangers_);
      if (goes) --strangers;
      return goes;
    });
  }

  static bool send(Guest& guest) {
    while (!guest.unsent.empty()) {
      const ssize_t sent =
          ::send(guest.socket, guest.unsent.data(), guest.unsent.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) guest.is_lost = base::means_unreachable(errno);
      if (sent < 0) return errno == EAGAIN;
      guest.unsent.erase(0, static_cast<size_t>(sent));
    }
    return true;
  }

  const std::string token_;
  const int restart_;
  int listener_;
  std::atomic<size_t> most_strangers_;
  int stop_ = -1;
  int port_ = 0;
  StoreKeys keys_;
  std::list<Guest> guests_;
  bool has_files_ = true;  // at the last attempt to let somebody in
  std::thread thread_;
};

StoreServer::StoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StoreServer::~StoreServer() = default;
int StoreServer::port() const { return impl_->port(); }

// The table belongs to the process as its ports do; ranks that are threads do not come here.
std::shared_ptr<StoreServer> StoreServer::open(int port, bool loopback, const std::string& token,
                                               int ranks, int restart) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<StoreServer>> servers;
  const std::lock_guard lock(mutex);
  if (auto server = servers[port].lock(); server && server->impl_->is_for(token, restart)) {
    server->impl_->expect(ranks);
    return server;
  }
  std::shared_ptr<StoreServer> server(
      new StoreServer(std::make_unique<Impl>(port, loopback, token, ranks, restart)));
  servers[server->port()] = server;
  return server;
}

}  // namespace fullshard::comm
