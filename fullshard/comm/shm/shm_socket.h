// SPDX-License-Identifier: Apache-2.0
// A local socket that carries messages with file descriptors, and nothing else.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fullshard/comm/shm/shm_descriptor.h"

namespace fullshard::comm {

using Deadline = std::chrono::steady_clock::time_point;

// 32 hexadecimal digits that nobody can guess.
std::string random_token();

struct SocketMessage {
  enum Kind : int32_t { offer, member, common, done, failed };
  Kind kind = failed;
  int32_t rank = -1;
  int32_t size = 0;
  std::array<char, 40> secret{};
  std::array<char, 512> text{};
};

struct Received {
  SocketMessage message;
  std::vector<ShmDescriptor> descriptors;
};

class LocalSocket {
 public:
  // In the abstract namespace: the name is gone with the socket, whatever happens.
  static LocalSocket listen(const std::string& name);
  static LocalSocket connect(const std::string& name);

  int descriptor() const { return descriptor_.get(); }
  // A waiting connection, if there is one and it comes from this user.
  std::optional<LocalSocket> accept() const;
  bool send(const SocketMessage& message, std::span<const int> descriptors = {}) const;
  // Nothing when the other side is gone or sends something else.
  std::optional<Received> receive() const;
  // Whether there is something to receive (or an end) before the deadline.
  bool is_ready_before(Deadline deadline) const;

 private:
  explicit LocalSocket(ShmDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  bool is_same_user() const;

  ShmDescriptor descriptor_;
};

}  // namespace fullshard::comm
