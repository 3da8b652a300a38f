// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/node_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "fullshard/base/printable.h"
#include "fullshard/base/sha256.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/base/tcp_socket.h"
#include "fullshard/launch/job_secret.h"

namespace fullshard::launch {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kGreeting = "fullshard nodes ";
constexpr size_t kLongestMessage = 4096;
constexpr size_t kMostStrangers = 64;
constexpr size_t kDigits = 2 * sizeof(base::Digest);
constexpr milliseconds kLook(20), kPatience(500), kFirstPause(50), kLongestPause(2000),
    kFarewell(1000);
// A host that is gone, or a cut link, closes no connection. The ranks' store waits as long for its
// ranks.
constexpr milliseconds kSilence(5000);

std::string loss_text(const Loss& loss) {
  std::string text = fmt::format("lost {} {} {}", loss.restart, loss.status, loss.text);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::optional<Loss> loss_in(const std::string& text) {
  Loss loss;
  int length = 0;
  if (std::sscanf(text.c_str(), "lost %d %d %n", &loss.restart, &loss.status, &length) != 2 ||
      length == 0 || loss.status <= 0) {
    return std::nullopt;
  }
  loss.text = base::printable(text.substr(static_cast<size_t>(length)));
  return loss;
}

}  // namespace

int node_line_port(int master_port) {
  return master_port >= 20000 ? master_port - 10000 : master_port + 10000;
}

NodeLine::NodeLine(const NodeLineOptions& options)
    : options_(options), watch_(::epoll_create1(EPOLL_CLOEXEC)), pause_(kFirstPause) {
  if (!options.is_first) return;
  listener_ = base::listen_tcp(options.port, /*loopback=*/false);
  if (listener_ < 0) {
    base::say(
        fmt::format("warning: launch: cannot listen on port {} ({}); the other nodes will not "
                    "hear at once of a rank that fails before all have met\n",
                    options.port, std::strerror(errno)));
    return;
  }
  epoll_event event = {.events = EPOLLIN, .data = {.fd = listener_}};
  ::epoll_ctl(watch_, EPOLL_CTL_ADD, listener_, &event);
}

// Closing a connection with unread input would discard what was sent.
NodeLine::~NodeLine() {
  if (listener_ >= 0) ::close(listener_);
  if (!options_.is_first) has_ended_ = true;
  for (const Peer& peer : peers_) {
    if (options_.is_first && peer.is_known) send(peer, "bye");
    ::shutdown(peer.socket, SHUT_WR);
  }
  const auto deadline = Clock::now() + kFarewell;
  while (
      !(told_.empty() && heard_.empty()) && Clock::now() < deadline &&
      std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.is_known; })) {
    wait();
  }
  while (!peers_.empty()) drop(peers_.back().socket);
  ::close(watch_);
}

void NodeLine::look_again() {
  is_cut_ = has_ended_ = false;
  next_try_ = {};
  pause_ = kFirstPause;
}

// A name that takes long to look up must not hold up the ranks' output all the time.
void NodeLine::connect() {
  const auto begin = Clock::now();
  if (!is_connecting() || begin < next_try_) return;
  const int socket = base::try_tcp(options_.address, options_.port, kPatience).socket;
  if (socket >= 0) {
    ::fcntl(socket, F_SETFL, O_NONBLOCK);
    add_peer(socket);
  }
  const auto end = Clock::now();
  next_try_ = end + std::max(pause_, 10 * (end - begin));
  pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
}

void NodeLine::read() {
  epoll_event events[16];
  const int count = ::epoll_wait(watch_, events, 16, 0);
  for (int place = 0; place < count; ++place) {
    const int descriptor = events[place].data.fd;
    if (descriptor == listener_) {
      accept_peer();
    } else {
      hear(descriptor);
    }
  }
}

void NodeLine::tell(const Loss& loss) {
  told_.push_back(loss);
  for (const Peer& peer : peers_) {
    if (peer.is_known) send(peer, loss_text(loss));
  }
}

bool NodeLine::have_all_come() const {
  if (has_ended_ || (told_.empty() && heard_.empty())) return true;
  return num_come_ >= (options_.is_first ? options_.nodes - 1 : 1);
}

void NodeLine::wait() {
  if (is_connecting()) connect();
  pollfd watched = {watch_, POLLIN, 0};
  ::poll(&watched, 1, static_cast<int>(kLook.count()));
  read();
}

std::optional<Loss> NodeLine::loss_of(int restart) const {
  const auto found = std::find_if(heard_.begin(), heard_.end(),
                                  [&](const Loss& loss) { return loss.restart == restart; });
  return found == heard_.end() ? std::nullopt : std::optional(*found);
}

NodeLine::Peer* NodeLine::find(int socket) {
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [&](const Peer& peer) { return peer.socket == socket; });
  return found == peers_.end() ? nullptr : &*found;
}

void NodeLine::accept_peer() {
  const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (socket >= 0) {
    drop_a_stranger();
    return add_peer(socket);
  }
  // Without a free descriptor, epoll would report the same connection again and again.
  if (errno == EMFILE || errno == ENFILE) ::epoll_ctl(watch_, EPOLL_CTL_DEL, listener_, nullptr);
}

// Drops the oldest connection that has proved nothing, when there are too many.
void NodeLine::drop_a_stranger() {
  const auto is_stranger = [](const Peer& peer) { return !peer.is_known; };
  const auto count = std::count_if(peers_.begin(), peers_.end(), is_stranger);
  if (static_cast<size_t>(count) < kMostStrangers) return;
  drop(std::find_if(peers_.begin(), peers_.end(), is_stranger)->socket);
}

void NodeLine::add_peer(int socket) {
  base::end_when_unreachable(socket, kSilence);
  epoll_event event = {.events = EPOLLIN, .data = {.fd = socket}};
  ::epoll_ctl(watch_, EPOLL_CTL_ADD, socket, &event);
  peers_.push_back({.socket = socket, .own_nonce = make_job_secret()});
  const std::string greeting = fmt::format("{}{}\n", kGreeting, peers_.back().own_nonce);
  ::send(socket, greeting.data(), greeting.size(), MSG_NOSIGNAL);
}

void NodeLine::drop(int socket) {
  Peer* peer = find(socket);
  if (!options_.is_first && peer->is_known && !peer->is_leaving) {
    is_cut_ = has_ended_ = true;
    num_come_ = 0;  // what was told may not have arrived
  }
  ::close(socket);  // and epoll forgets it
  peers_.erase(peers_.begin() + (peer - peers_.data()));
}

void NodeLine::hear(int socket) {
  Peer* peer = find(socket);
  if (peer == nullptr) return;  // dropped in the meantime
  char buffer[1024];
  const ssize_t got = ::recv(socket, buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return drop(socket);
  peer->said.append(buffer, static_cast<size_t>(got));
  for (size_t end; (end = peer->said.find('\n')) != std::string::npos;) {
    const std::string line = peer->said.substr(0, end);
    peer->said.erase(0, end + 1);
    if (!hear_line(*peer, line)) return drop(socket);
  }
  if (peer->said.size() > kLongestMessage) drop(socket);
}

// Returns whether the line can be trusted.
bool NodeLine::hear_line(Peer& peer, const std::string& line) {
  if (peer.nonce.empty()) {
    if (!line.starts_with(kGreeting) || line.size() == kGreeting.size()) return false;
    peer.nonce = line.substr(kGreeting.size());
    send(peer, "hello");
    return true;
  }
  if (line.size() <= kDigits) return false;
  const std::string text = line.substr(kDigits + 1);
  const std::string expected = code(peer.own_nonce, !options_.is_first, text);
  if (!base::are_equal(base::sha256(line.substr(0, kDigits)), base::sha256(expected))) return false;
  heed(peer, text);
  return true;
}

void NodeLine::heed(Peer& peer, const std::string& text) {
  if (!std::exchange(peer.is_known, true)) {
    ++num_come_;
    send_losses(peer);
  }
  if (text == "bye") peer.is_leaving = has_ended_ = true;
  // Only the first loss of a start counts: a node that comes back would repeat the others.
  const auto loss = loss_in(text);
  if (!loss || loss_of(loss->restart)) return;
  heard_.push_back(*loss);
  for (const Peer& other : peers_) {
    if (options_.is_first && other.is_known && &other != &peer) send(other, text);
  }
}

// Node 0 may be a later launcher than the one that heard of a loss or told it.
void NodeLine::send_losses(const Peer& peer) const {
  for (const Loss& loss : told_) send(peer, loss_text(loss));
  for (const Loss& loss : heard_) send(peer, loss_text(loss));
}

// A few short lines always fit.
void NodeLine::send(const Peer& peer, const std::string& text) const {
  const std::string line = fmt::format("{} {}\n", code(peer.nonce, options_.is_first, text), text);
  ::send(peer.socket, line.data(), line.size(), MSG_NOSIGNAL);
}

// The code covers who speaks, so that no line can be sent back to its sender.
std::string NodeLine::code(const std::string& nonce, bool from_first,
                           const std::string& text) const {
  const base::Digest digest = base::hmac_sha256(
      options_.secret, fmt::format("{} {} {}", from_first ? "node 0" : "a node", nonce, text));
  std::string digits;
  for (const uint8_t byte : digest) digits += fmt::format("{:02x}", byte);
  return digits;
}

}  // namespace fullshard::launch
