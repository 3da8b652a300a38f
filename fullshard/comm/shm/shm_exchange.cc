// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_exchange.h"

#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/shm/shm_socket.h"
#include "fullshard/comm/store/rendezvous.h"

namespace fullshard::comm {
namespace {

constexpr const char* kKey = "shm/meeting";
constexpr auto kGrace = std::chrono::seconds(5);

double seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

SocketMessage make_message(SocketMessage::Kind kind, int rank, const std::string& text = {}) {
  SocketMessage message;
  message.kind = kind;
  message.rank = rank;
  std::copy_n(text.data(), std::min(text.size(), message.text.size() - 1), message.text.data());
  return message;
}

// Rank 0: takes one offer from every other rank. Whoever connects and is not one of them is
// ignored, and nobody is waited for alone.
class Meeting {
 public:
  Meeting(int size, std::string secret)
      : secret_(std::move(secret)), sockets_(size), offers_(size) {}

  void collect(const LocalSocket& listener, Deadline deadline) {
    while (!missing().empty() && std::chrono::steady_clock::now() < deadline) {
      wait_for_input(listener, deadline);
      if (auto guest = listener.is_ready_before({}) ? listener.accept() : std::nullopt) {
        guests_.push_back(std::move(*guest));
      }
      std::erase_if(guests_, [&](LocalSocket& guest) {
        return guest.is_ready_before({}) && (welcome(guest), true);
      });
    }
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < static_cast<int>(sockets_.size()); ++rank) {
      if (!sockets_[rank]) ranks.push_back(rank);
    }
    return ranks;
  }

  void tell_failure(const std::string& text) const {
    for (const auto& socket : sockets_) {
      if (socket) socket->send(make_message(SocketMessage::failed, 0, text));
    }
  }

  // One rank after the other, so that few descriptors are under way at a time.
  std::optional<int> hand_out(const ShmOffer& own, Deadline deadline) const {
    const int size = static_cast<int>(sockets_.size());
    for (int rank = 1; rank < size; ++rank) {
      bool ok = sockets_[rank]->send(make_message(SocketMessage::common, 0), {&own.common, 1});
      for (int member = 0; member < size && ok; ++member) {
        const int both[] = {member == 0 ? own.arena : offers_[member][0].get(),
                            member == 0 ? own.lifeline : offers_[member][1].get()};
        ok = sockets_[rank]->send(make_message(SocketMessage::member, member), both);
      }
      const auto answer = ok && sockets_[rank]->is_ready_before(deadline)
                              ? sockets_[rank]->receive()
                              : std::nullopt;
      if (!answer || answer->message.kind != SocketMessage::done) return rank;
    }
    return std::nullopt;
  }

  ShmPeers take_offers() {
    ShmPeers peers;
    for (auto& offer : offers_) {
      peers.arenas.push_back(offer.empty() ? ShmDescriptor() : std::move(offer[0]));
      peers.lifelines.push_back(offer.empty() ? ShmDescriptor() : std::move(offer[1]));
    }
    return peers;
  }

 private:
  void wait_for_input(const LocalSocket& listener, Deadline deadline) const {
    std::vector<pollfd> wanted = {{listener.descriptor(), POLLIN, 0}};
    for (const auto& guest : guests_) wanted.push_back({guest.descriptor(), POLLIN, 0});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    ::poll(wanted.data(), wanted.size(),
           static_cast<int>(std::clamp<int64_t>(left.count(), 1, 60'000)));
  }

  void welcome(LocalSocket& guest) {
    auto received = guest.receive();
    if (!received || received->message.kind != SocketMessage::offer) return;
    const SocketMessage& message = received->message;
    const int size = static_cast<int>(sockets_.size());
    if (message.secret.data() != secret_ || received->descriptors.size() != 2) return;
    if (message.rank < 1 || message.rank >= size || message.size != size) return;
    offers_[message.rank] = std::move(received->descriptors);
    sockets_[message.rank] = std::move(guest);
  }

  std::string secret_;
  std::vector<std::optional<LocalSocket>> sockets_;  // by rank
  std::vector<std::vector<ShmDescriptor>> offers_;   // by rank: arena, lifeline
  std::list<LocalSocket> guests_;                    // who has not said who it is
};

ShmPeers host_meeting(Rendezvous& rendezvous, int size, const ShmOffer& own,
                      std::chrono::milliseconds timeout, const std::vector<int>& names) {
  const std::string name = "fullshard-" + random_token(), secret = random_token();
  const LocalSocket listener = LocalSocket::listen(name);
  rendezvous.set(kKey, name + " " + secret);
  const Deadline deadline = std::chrono::steady_clock::now() + timeout;
  Meeting meeting(size, secret);
  meeting.collect(listener, deadline);
  if (auto missing = meeting.missing(); !missing.empty()) {
    for (int& rank : missing) rank = names[static_cast<size_t>(rank)];
    const std::string text = fmt::format(
        "shm: rank{} {} of {} did not come within {:.3g} s (init timeout); see their logs",
        missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), size, seconds(timeout));
    meeting.tell_failure(text);
    throw Error(text);
  }
  if (const auto lost = meeting.hand_out(own, deadline + kGrace)) {
    const int ended = names[static_cast<size_t>(*lost)];
    const std::string text =
        fmt::format("shm: rank {} ended while the ranks met; see rank {}'s log", ended, ended);
    meeting.tell_failure(text);
    throw Error(text);
  }
  return meeting.take_offers();
}

ShmPeers attend_meeting(Rendezvous& rendezvous, int rank, int size, const ShmOffer& own,
                        std::chrono::milliseconds timeout, const std::vector<int>& names) {
  const std::string first = fmt::format("rank {}", names.front());
  const std::string invitation = rendezvous.get(kKey, timeout, first);
  const size_t space = invitation.find(' ');
  check(space != std::string::npos, "shm: {}'s invitation '{}' cannot be read", first, invitation);
  const LocalSocket socket = LocalSocket::connect(invitation.substr(0, space));
  SocketMessage offer = make_message(SocketMessage::offer, rank);
  offer.size = size;
  const std::string secret = invitation.substr(space + 1);
  std::copy_n(secret.data(), std::min(secret.size(), offer.secret.size() - 1), offer.secret.data());
  const int both[] = {own.arena, own.lifeline};
  check(socket.send(offer, both), "shm: {} ended while the ranks met; see {}'s log", first, first);

  ShmPeers peers;
  const Deadline deadline = std::chrono::steady_clock::now() + timeout + kGrace;
  while (static_cast<int>(peers.arenas.size()) < size) {
    check(socket.is_ready_before(deadline), "shm: {} has not answered for {:.3g} s", first,
          seconds(timeout + kGrace));
    auto received = socket.receive();
    check(received.has_value(), "shm: {} ended while the ranks met; see {}'s log", first, first);
    const SocketMessage& message = received->message;
    if (message.kind == SocketMessage::failed) throw Error(message.text.data());
    const size_t expected = message.kind == SocketMessage::common ? 1 : 2;
    check(received->descriptors.size() == expected,
          "shm: {} of {} file descriptors arrived; raise the limit on open files (ulimit -n)",
          received->descriptors.size(), expected);
    if (message.kind == SocketMessage::common) {
      peers.common = std::move(received->descriptors[0]);
    } else {
      peers.arenas.push_back(std::move(received->descriptors[0]));
      peers.lifelines.push_back(std::move(received->descriptors[1]));
    }
  }
  socket.send(make_message(SocketMessage::done, rank));
  return peers;
}

}  // namespace

ShmPeers exchange_descriptors(Rendezvous& rendezvous, int rank, int size, const ShmOffer& own,
                              std::chrono::milliseconds timeout, const std::vector<int>& names) {
  std::vector<int> shown = names;
  for (int each = static_cast<int>(shown.size()); each < size; ++each) shown.push_back(each);
  return rank == 0 ? host_meeting(rendezvous, size, own, timeout, shown)
                   : attend_meeting(rendezvous, rank, size, own, timeout, shown);
}

}  // namespace fullshard::comm
