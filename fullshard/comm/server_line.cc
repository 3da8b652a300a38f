#include "fullshard/comm/server_line.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A socket, or why there is none.
struct Attempt {
  int socket = -1;
  std::string reason;
};

Attempt try_address(const addrinfo& address, milliseconds patience) {
  const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return {-1, std::strerror(errno)};
  int reason = ::connect(socket, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (reason == EINPROGRESS) {
    pollfd line = {socket, POLLOUT, 0};
    socklen_t length = sizeof reason;
    if (::poll(&line, 1, static_cast<int>(patience.count())) <= 0) {
      reason = ETIMEDOUT;
    } else if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &reason, &length) != 0) {
      reason = errno;
    }
  }
  if (reason == 0) return {socket, ""};
  ::close(socket);
  return {-1, std::strerror(reason)};
}

Attempt try_host(const std::string& host, int port, milliseconds patience) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (problem != 0) return {-1, ::gai_strerror(problem)};
  Attempt attempt;
  for (const addrinfo* each = found; each != nullptr && attempt.socket < 0; each = each->ai_next) {
    attempt = try_address(*each, patience);
  }
  ::freeaddrinfo(found);
  return attempt;
}

}  // namespace

ServerLine::ServerLine(const std::string& host, int port, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (milliseconds pause(5);; pause = std::min(2 * pause, milliseconds(250))) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    const Attempt attempt =
        try_host(host, port, std::clamp(left, milliseconds(1), milliseconds(5000)));
    socket_ = attempt.socket;
    if (socket_ >= 0) return;
    check(Clock::now() + pause < deadline,
          "world: nobody answers at {}:{} within {:.3g} s ({}); is rank 0 running there, and are "
          "MASTER_ADDR and MASTER_PORT the same on all ranks?",
          host, port, static_cast<double>(timeout.count()) / 1000, attempt.reason);
    std::this_thread::sleep_for(pause);
  }
}

ServerLine::~ServerLine() {
  if (socket_ >= 0) ::close(socket_);
}

// The server sends nothing unasked, so the only thing to read is the end.
bool ServerLine::is_open() const {
  pollfd line = {socket_, POLLIN, 0};
  return ::poll(&line, 1, 0) == 0;
}

}  // namespace fullshard
