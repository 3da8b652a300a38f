// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/port.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::launch {
namespace {

// A socket that has the port (0: any), or -1 with errno.
int bound_socket(int port, uint32_t host) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const int yes = 1;  // as the ranks' store does: closed connections do not count
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

// Only one process of a host, or of a network namespace, can have a socket of this name, and the
// kernel frees it when the process ends. -1: another has it.
int claim_of(int port) {
  const std::string name = fmt::format("fullshard launch, port {}", port);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // A leading zero byte: the name is not that of a file.
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  check(socket >= 0, "launch: cannot make a socket: {}", std::strerror(errno));
  if (::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0) return socket;
  ::close(socket);
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

std::optional<HeldPort> HeldPort::hold(int number) {
  HeldPort port(number);
  port.claim_ = claim_of(number);
  if (port.claim_ < 0 || !is_port_free(number)) return std::nullopt;
  return port;
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
  port.claim_ = claim_of(port.number_);
  return port.claim_ >= 0 ? std::move(port) : free_one();
}

HeldPort::HeldPort(HeldPort&& other) noexcept
    : number_(other.number_),
      socket_(std::exchange(other.socket_, -1)),
      claim_(std::exchange(other.claim_, -1)) {}

HeldPort::~HeldPort() {
  for (const int socket : {socket_, claim_}) {
    if (socket >= 0) ::close(socket);
  }
}

}  // namespace fullshard::launch
