// SPDX-License-Identifier: Apache-2.0
// TCP sockets, made in one place for the ranks' store and for the launchers.
#pragma once

#include <chrono>
#include <string>

namespace fullshard::base {

// A connected socket, which is blocking, or why there is none.
struct TcpAttempt {
  int socket = -1;
  std::string reason = {};
};

// One attempt at each address of the host; `patience` is for each of them, not for its name.
TcpAttempt try_tcp(const std::string& host, int port, std::chrono::milliseconds patience);

// A socket that listens and does not block, for both families where there are both; -1 with errno.
// Port 0: any that is free. Loopback: only this host can reach it.
int listen_tcp(int port, bool loopback);

// The kernel ends the connection when the other host has acknowledged nothing for so long, also
// while nothing is sent. It answers for a process that is only busy or stopped.
void end_when_unreachable(int socket, std::chrono::milliseconds silence);
// Whether errno of a call on such a socket says that.
bool means_unreachable(int error);

}  // namespace fullshard::base
