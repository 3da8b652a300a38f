// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/store/server_line.h"

#include <poll.h>
#include <unistd.h>

#include "fullshard/comm/store/tcp_connect.h"

namespace fullshard::comm {

ServerLine::ServerLine(const std::string& host, int port, std::chrono::milliseconds timeout)
    : socket_(connect_tcp(host, port, timeout)) {}

ServerLine::~ServerLine() { ::close(socket_); }

// The server sends nothing unasked, so the only thing to read is the end.
bool ServerLine::is_open() const {
  pollfd line = {socket_, POLLIN, 0};
  return ::poll(&line, 1, 0) == 0;
}

}  // namespace fullshard::comm
