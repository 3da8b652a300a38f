// SPDX-License-Identifier: Apache-2.0
// Ports on which the ranks meet.
#pragma once

#include <optional>

namespace fullshard::launch {

// Whether nothing listens on it at the moment.
bool is_port_free(int port);

// The port where the ranks meet. While this lives, no other launcher of this host gets a port that
// is held, and nothing listens there, so that a rank can. A port that was picked is also bound, so
// that no other program gets it.
class HeldPort {
 public:
  // Picks a free port, for ranks of this host.
  static HeldPort free_one();
  // A port that the user chose; absent where a program listens on it or a launcher holds it.
  static std::optional<HeldPort> hold(int number);
  // A port of another host: only its number.
  explicit HeldPort(int number) : number_(number) {}
  ~HeldPort();
  HeldPort(HeldPort&& other) noexcept;
  HeldPort& operator=(HeldPort&&) = delete;

  int number() const { return number_; }

 private:
  int number_;
  int socket_ = -1;  // bound to it
  int claim_ = -1;   // marks the port as taken for other launchers
};

}  // namespace fullshard::launch
