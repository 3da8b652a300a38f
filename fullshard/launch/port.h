// SPDX-License-Identifier: Apache-2.0
// Ports on which the ranks meet.
#pragma once

namespace fullshard::launch {

// Nobody listens on it at the moment.
bool is_port_free(int port);
int find_free_port();

}  // namespace fullshard::launch
