// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/port.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::launch {
namespace {

// A socket that has the port (0: any), or -1 with errno.
int bound_socket(int port, uint32_t host) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const int yes = 1;  // as the ranks' store does: connections that are over do not count
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return socket;
  const int reason = errno;
  ::close(socket);
  errno = reason;
  return -1;
}

}  // namespace

bool is_port_free(int port) {
  const int socket = bound_socket(port, INADDR_ANY);
  if (socket < 0) return false;
  const bool can_listen = ::listen(socket, 1) == 0;
  ::close(socket);
  return can_listen;
}

HeldPort HeldPort::free_one() {
  HeldPort port(0);
  port.socket_ = bound_socket(0, INADDR_LOOPBACK);
  sockaddr_in address = {};
  socklen_t length = sizeof address;
  check(port.socket_ >= 0 &&
            ::getsockname(port.socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0,
        "launch: no free port on this host: {}", std::strerror(errno));
  port.number_ = ntohs(address.sin_port);
  return port;
}

HeldPort::HeldPort(HeldPort&& other) noexcept
    : number_(other.number_), socket_(std::exchange(other.socket_, -1)) {}

HeldPort::~HeldPort() {
  if (socket_ >= 0) ::close(socket_);
}

}  // namespace fullshard::launch
