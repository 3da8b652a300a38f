// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/store/tcp_connect.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "fullshard/base/error.h"
#include "fullshard/base/tcp_socket.h"

namespace fullshard::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Its text, unless it is a loopback address.
std::string reachable_text(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    if ((ntohl(four.sin_addr.s_addr) >> 24) == 127) return {};
    ::inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
  } else if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_LOOPBACK(&six.sin6_addr)) return {};
    ::inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
  }
  return text.data();
}

}  // namespace

int connect_tcp(const std::string& host, int port, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (milliseconds pause(5);; pause = std::min(2 * pause, milliseconds(50))) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    const base::TcpAttempt attempt =
        base::try_tcp(host, port, std::clamp(left, milliseconds(1), milliseconds(5000)));
    if (attempt.socket >= 0) return attempt.socket;
    check(Clock::now() + pause < deadline,
          "world: nobody answers at {}:{} within {:.3g} s ({}); is rank 0 running there, and are "
          "MASTER_ADDR and MASTER_PORT the same on all ranks?",
          host, port, static_cast<double>(timeout.count()) / 1000, attempt.reason);
    std::this_thread::sleep_for(pause);
  }
}

std::string own_address_towards(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;  // connecting one sends nothing, but chooses the way
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  std::string text;
  for (const addrinfo* each = found; each != nullptr && text.empty(); each = each->ai_next) {
    const int socket = ::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    sockaddr_storage own = {};
    socklen_t length = sizeof own;
    if (::connect(socket, each->ai_addr, each->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0) {
      text = reachable_text(own);
    }
    ::close(socket);
  }
  ::freeaddrinfo(found);
  return text;
}

}  // namespace fullshard::comm
