// SPDX-License-Identifier: Apache-2.0
// A TCP connection to a host that may not listen yet.
#pragma once

#include <chrono>
#include <string>

namespace fullshard::comm {

// Tries again until somebody listens at the address; gives the socket, which is blocking. After
// `timeout` an Error that names the address and the last reason.
int connect_tcp(const std::string& host, int port, std::chrono::milliseconds timeout);

// This host's address on the way to another one, where other hosts reach it; empty when that way
// does not leave the host.
std::string own_address_towards(const std::string& host, int port);

}  // namespace fullshard::comm
