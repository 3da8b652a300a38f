// SPDX-License-Identifier: Apache-2.0
// Ports on which the ranks meet.
#pragma once

namespace fullshard::launch {

// Nobody listens on it at the moment.
bool is_port_free(int port);

// Where the ranks meet. A port that the launcher picked is given to no other program while this
// lives: it is bound, and not listened on, so that a rank may still listen there.
class HeldPort {
 public:
  // Picks a free port, for ranks of this host.
  static HeldPort free_one();
  // A port that the user chose: only its number, nothing is held.
  explicit HeldPort(int number) : number_(number) {}
  ~HeldPort();
  HeldPort(HeldPort&& other) noexcept;
  HeldPort& operator=(HeldPort&&) = delete;

  int number() const { return number_; }

 private:
  int number_;
  int socket_ = -1;
};

}  // namespace fullshard::launch
