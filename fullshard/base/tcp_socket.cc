// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace fullshard::base {
namespace {

using std::chrono::milliseconds;

TcpAttempt try_address(const addrinfo& address, milliseconds patience) {
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
  if (reason == 0) {
    ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) & ~O_NONBLOCK);
    return {socket, ""};
  }
  ::close(socket);
  return {-1, std::strerror(reason)};
}

int listen_on(int family, const sockaddr* address, socklen_t length) {
  const int socket = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const int yes = 1, no = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (family == AF_INET6) ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (::bind(socket, address, length) == 0 && ::listen(socket, 4096) == 0) return socket;
  const int reason = errno;
  ::close(socket);
  errno = reason;
  return -1;
}

}  // namespace

TcpAttempt try_tcp(const std::string& host, int port, milliseconds patience) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (problem != 0) return {-1, ::gai_strerror(problem)};
  TcpAttempt attempt;
  for (const addrinfo* each = found; each != nullptr && attempt.socket < 0; each = each->ai_next) {
    attempt = try_address(*each, patience);
  }
  ::freeaddrinfo(found);
  return attempt;
}

int listen_tcp(int port, bool loopback) {
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  six.sin6_addr = in6addr_any;
  if (!loopback) {
    const int socket = listen_on(AF_INET6, reinterpret_cast<sockaddr*>(&six), sizeof six);
    if (socket >= 0 || errno == EADDRINUSE) return socket;
  }
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  four.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
  return listen_on(AF_INET, reinterpret_cast<sockaddr*>(&four), sizeof four);
}

void end_when_unreachable(int socket, milliseconds silence) {
  const auto limit = static_cast<unsigned>(silence.count());
  const int yes = 1, idle = 1, interval = 1;  // seconds, the least there is
  const int probes = std::max(1, static_cast<int>(silence.count() / 1000) - idle);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  // For what was sent and never acknowledged; else the kernel tries for a quarter of an hour.
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

bool means_unreachable(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == EHOSTDOWN || error == ENETDOWN;
}

}  // namespace fullshard::base
