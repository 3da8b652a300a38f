// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/port.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard::launch {
namespace {

// The port that was bound, or 0 with errno.
int try_port(int port, uint32_t host) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return 0;
  const int yes = 1;  // as the ranks' store does: connections that are over do not count
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = ::bind(socket, generic, length) == 0 && ::listen(socket, 1) == 0 &&
                     ::getsockname(socket, generic, &length) == 0;
  const int reason = errno;
  ::close(socket);
  errno = reason;
  return bound ? ntohs(address.sin_port) : 0;
}

}  // namespace

bool is_port_free(int port) { return try_port(port, INADDR_ANY) != 0; }

int find_free_port() {
  const int port = try_port(0, INADDR_LOOPBACK);
  check(port != 0, "launch: no free port on this host: {}", std::strerror(errno));
  return port;
}

}  // namespace fullshard::launch
