#include "fullshard/comm/listener.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

namespace fullshard {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Zero, or the reason why the connection failed.
int try_address(const addrinfo& address, milliseconds patience) {
  const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno;
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
  ::close(socket);
  return reason;
}

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { ::freeaddrinfo(addresses); }
};

// Empty, or the reason why none of the host's addresses could be reached.
std::string try_host(const std::string& host, int port, milliseconds patience) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (problem != 0) return ::gai_strerror(problem);
  const std::unique_ptr<addrinfo, FreeAddresses> owner(found);
  int reason = ENOENT;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    reason = try_address(*each, patience);
    if (reason == 0) return {};
  }
  return std::strerror(reason);
}

}  // namespace

std::string wait_for_listener(const std::string& host, int port, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (milliseconds pause(5);; pause = std::min(2 * pause, milliseconds(250))) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    std::string reason =
        try_host(host, port, std::clamp(left, milliseconds(1), milliseconds(5000)));
    if (reason.empty() || Clock::now() + pause >= deadline) return reason;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace fullshard
