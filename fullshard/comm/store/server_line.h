// SPDX-License-Identifier: Apache-2.0
// A connection over which nothing is said: it tells whether the process that serves the ranks'
// store still lives. c10d finds that out too, but prints stack traces about it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace fullshard::comm {

class ServerLine {
 public:
  // Waits until somebody listens at the address. After `timeout` an Error that names the address
  // and the last reason.
  ServerLine(const std::string& host, int port, std::chrono::milliseconds timeout);
  ~ServerLine();
  ServerLine(const ServerLine&) = delete;
  ServerLine& operator=(const ServerLine&) = delete;

  // False once the other end has closed. Any thread.
  bool is_open() const;

 private:
  int socket_ = -1;
};

}  // namespace fullshard::comm
