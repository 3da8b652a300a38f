// SPDX-License-Identifier: Apache-2.0
// Ports on which the ranks meet.
#pragma once

namespace fullshard::launch {

// Nobody listens on it at the moment.
bool is_port_free(int port);

// A port of this host that no other program is given while this lives. It is bound and not listened
// on, so that a rank may still listen there.
class HeldPort {
 public:
  // One that is free, for ranks of this host.
  static HeldPort free_one();
  // One that somebody chose, which is theirs to keep free.
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
