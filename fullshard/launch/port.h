// SPDX-License-Identifier: Apache-2.0
// Ports on which the ranks meet.
#pragma once

#include <optional>

namespace fullshard::launch {

// Nobody listens on it at the moment.
bool is_port_free(int port);

// Where the ranks meet. One that is held is given to no other launcher of this host while this
// lives, and nothing listens there yet, so that a rank may. One that was picked is given to no
// other program either: it is bound.
class HeldPort {
 public:
  // Picks a free port, for ranks of this host.
  static HeldPort free_one();
  // A port that the user chose; nothing where a program listens on it or a launcher holds it.
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
  int claim_ = -1;   // that other launchers see
};

}  // namespace fullshard::launch
