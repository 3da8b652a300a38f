// Waits for the process that serves the ranks' store, quietly: c10d would print warnings with stack
// traces while it waits.
#pragma once

#include <chrono>
#include <string>

namespace fullshard {

// Returns when somebody listens at the address; otherwise, when the time is over, the last reason
// why nobody could be reached. Empty means success.
std::string wait_for_listener(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace fullshard
