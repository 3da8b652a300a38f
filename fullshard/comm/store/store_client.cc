// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/store/store_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/tcp_socket.h"
#include "fullshard/comm/store/rendezvous.h"
#include "fullshard/comm/store/tcp_connect.h"

namespace fullshard::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kLongestWait = milliseconds(500);      // at a time, so that others can speak between
constexpr auto kServerPatience = milliseconds(2000);  // with a server that has answered before
constexpr auto kLongestReturnPause =
    milliseconds(200);  // of one who was dropped, before he comes again
constexpr const char* kGone =
    "rendezvous: the store does not answer; the process that serves it has ended";
constexpr time_t kSilence = 60;  // seconds that a server may take whose host is there
// The same for a thread that asks all the time and whose end somebody waits for. Longer than a host
// may be silent, so that one that cannot be reached is told from a server that is only slow.
constexpr auto kSilenceOfAnother = kHostSilence + std::chrono::seconds(3);

// A server that does not answer must not hold a rank for ever.
void limit_silence(int socket, milliseconds limit) {
  const timeval time = {std::max<time_t>(limit.count() / 1000, 1), 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

}  // namespace

StoreClient::StoreClient(const StorePlace& place) : place_(place) {
  try {
    join();
  } catch (...) {
    if (socket_ >= 0) ::close(socket_);
    throw;
  }
  limit_silence(socket_, std::chrono::seconds(kSilence));
}

StoreClient::~StoreClient() { ::close(socket_); }

void StoreClient::join() {
  const auto deadline = Clock::now() + place_.timeout;
  for (milliseconds pause(5);; pause = std::min(2 * pause, kLongestReturnPause)) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    socket_ = connect_tcp(place_.host, place_.port, std::max(left, milliseconds(1)));
    const int yes = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    base::end_when_unreachable(socket_, kHostSilence);
    limit_silence(socket_, std::min<milliseconds>(left, std::chrono::seconds(kSilence)));
    if (introduce()) return;
    ::close(std::exchange(socket_, -1));
    if (Clock::now() + pause >= deadline) fail_as_dropped();
    std::this_thread::sleep_for(pause);
  }
}

void StoreClient::fail_as_no_store() const {
  fail(
      "world: what listens at {}:{} is not the ranks' store; is another program using MASTER_PORT?",
      place_.host, place_.port);
}

void StoreClient::fail_as_dropped() const {
  if (!was_greeted_) fail_as_no_store();
  const double seconds = static_cast<double>(place_.timeout.count()) / 1000;
  check(!other_restart_,
        "world: the store at {}:{} is that of restart {}, but this rank belongs to restart {} and "
        "waited for its store for {:.3g} s; see rank 0's log, or raise timeouts.init "
        "(--init-timeout) if the launchers are only slow to start the ranks again",
        place_.host, place_.port, other_restart_.value_or(0), place_.restart, seconds);
  fail(
      "world: the store at {}:{} dropped this rank's connections for {:.3g} s; see rank 0's log, "
      "or raise timeouts.init (--init-timeout) if it is only overrun",
      place_.host, place_.port, seconds);
}

std::shared_ptr<StoreClient> StoreClient::another() {
  pollfd line = {socket_, POLLRDHUP, 0};
  if (is_unreachable_ || ::poll(&line, 1, 0) != 0) {
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &length);
    fail_as_gone(error);
  }
  StorePlace place = place_;
  place.timeout = std::min(place.timeout, kServerPatience);
  auto client = std::make_shared<StoreClient>(place);
  limit_silence(client->socket_, kSilenceOfAnother);
  return client;
}

// The version stands in front, since what follows may be longer or shorter in another one.
void StoreClient::check_greeting(const std::string& magic) const {
  if (magic == kStoreMagic) return;
  if (!magic.starts_with(kStoreFamily)) fail_as_no_store();
  fail(
      "world: the store at {}:{} is that of another version of Fullshard, which this rank cannot "
      "speak with; install the same version on all hosts",
      place_.host, place_.port);
}

bool StoreClient::introduce() {
  other_restart_.reset();
  const auto magic = receive_all(kStoreMagic.size());
  if (!magic) return false;
  check_greeting(*magic);
  was_greeted_ = true;
  StoreNonce theirs;
  const auto nonce = receive_all(theirs.size());
  if (!nonce) return false;
  std::memcpy(theirs.data(), nonce->data(), theirs.size());
  const StoreNonce own = make_store_nonce();
  const std::string introduction =
      std::string(own.begin(), own.end()) + client_claim(place_.token, theirs, own, place_.restart);
  const auto answer = send_all(introduction) ? receive_all(kStoreClaimBytes) : std::nullopt;
  if (!answer) return false;
  const int restart = restart_in(*answer);
  check(is_claim(*answer, server_claim(place_.token, theirs, own, restart)),
        "world: the store at {}:{} belongs to another job, or this rank has another token; set "
        "FULLSHARD_JOB_SECRET to the same on all ranks",
        place_.host, place_.port);
  if (restart != place_.restart) other_restart_ = restart;
  return !other_restart_;
}

bool StoreClient::send_all(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) return false;
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::optional<std::string> StoreClient::receive_all(size_t bytes) const {
  std::string text(bytes, '\0');
  for (size_t done = 0; done < bytes;) {
    errno = 0;  // an orderly end leaves it as it is
    const ssize_t got = ::recv(socket_, text.data() + done, bytes - done, 0);
    if (got == 0 || (got < 0 && errno != EINTR)) return std::nullopt;
    if (got > 0) done += static_cast<size_t>(got);
  }
  return text;
}

std::string StoreClient::ask(const StoreWriter& request) {
  const std::string message = request.message();
  const std::lock_guard lock(mutex_);
  auto answer = send_all(message) ? receive_all(kStoreLengthBytes) : std::nullopt;
  if (answer) answer = receive_all(store_message_length(*answer));
  if (!answer) fail_as_gone(errno);
  return *answer;
}

void StoreClient::fail_as_gone(int error) {
  if (base::means_unreachable(error)) is_unreachable_ = true;
  if (is_unreachable_) {
    throw StoreUnreachable(fmt::format(
        "rendezvous: the host that serves the store, {}, cannot be reached; the network "
        "to it is cut or too slow",
        place_.host));
  }
  fail("{}", kGone);
}

void StoreClient::set(const std::string& key, const std::string& value) {
  ask(StoreWriter().number(static_cast<int64_t>(StoreRequest::set)).text(key).text(value));
}

std::optional<std::string> StoreClient::find(const std::string& key) {
  const std::string answer =
      ask(StoreWriter().number(static_cast<int64_t>(StoreRequest::get)).text(key));
  StoreReader reader(answer);
  return reader.number() != 0 ? std::optional(reader.text()) : std::nullopt;
}

std::vector<std::optional<std::string>> StoreClient::find_all(
    const std::vector<std::string>& keys) {
  StoreWriter request;
  request.number(static_cast<int64_t>(StoreRequest::get_all)).keys(keys);
  const std::string answer = ask(request);
  StoreReader reader(answer);
  std::vector<std::optional<std::string>> values(keys.size());
  for (auto& value : values) {
    if (reader.number() != 0) value = reader.text();
  }
  return values;
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& desired) {
  const std::string answer = ask(StoreWriter()
                                     .number(static_cast<int64_t>(StoreRequest::compare_set))
                                     .text(key)
                                     .text(expected)
                                     .text(desired));
  return StoreReader(answer).text();
}

int64_t StoreClient::add(const std::string& key, int64_t amount) {
  const std::string answer =
      ask(StoreWriter().number(static_cast<int64_t>(StoreRequest::add)).text(key).number(amount));
  return StoreReader(answer).number();
}

bool StoreClient::ask_for_keys(StoreRequest kind, const std::vector<std::string>& keys,
                               milliseconds timeout) {
  StoreWriter request;
  request.number(static_cast<int64_t>(kind)).number(timeout.count()).keys(keys);
  const std::string answer = ask(request);
  return StoreReader(answer).number() != 0;
}

bool StoreClient::has(const std::vector<std::string>& keys) {
  return ask_for_keys(StoreRequest::has, keys, milliseconds(0));
}

bool StoreClient::wait(const std::vector<std::string>& keys, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    const auto now = std::clamp(left, milliseconds(0), kLongestWait);
    if (ask_for_keys(StoreRequest::wait, keys, now)) return true;
    if (left <= kLongestWait) return false;
  }
}

void StoreClient::set_when_lost(const std::string& key, const std::string& value) {
  ask(StoreWriter()
          .number(static_cast<int64_t>(StoreRequest::set_when_lost))
          .text(key)
          .text(value));
}

bool StoreClient::remove(const std::string& key) {
  const std::string answer =
      ask(StoreWriter().number(static_cast<int64_t>(StoreRequest::remove)).text(key));
  return StoreReader(answer).number() != 0;
}

int64_t StoreClient::count() {
  const std::string answer = ask(StoreWriter().number(static_cast<int64_t>(StoreRequest::count)));
  return StoreReader(answer).number();
}

}  // namespace fullshard::comm
