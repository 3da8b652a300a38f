// SPDX-License-Identifier: Apache-2.0
// What all copies of a World share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/transport.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::comm {
class ShmDomain;
}  // namespace fullshard::comm

namespace fullshard {

class World::Impl {
 public:
  // `hosts[r]` is the host of rank r, counted from 0 in order of their lowest rank.
  Impl(int rank, std::vector<int> hosts, const Timeouts& timeouts,
       std::shared_ptr<Recorder> recorder, std::shared_ptr<comm::Transport> transport,
       at::Device device = at::kCPU);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Only the first call counts.
  void leave(const std::string& reason) noexcept;

  const int rank;
  const std::vector<int> hosts;
  const Timeouts timeouts;
  const std::shared_ptr<Recorder> recorder;
  const std::shared_ptr<comm::Transport> transport;
  const at::Device device;
  Communicator communicator;

 private:
  bool has_left_ = false;
};

std::shared_ptr<comm::Transport> make_self_transport();
std::shared_ptr<comm::Transport> make_shm_transport(std::shared_ptr<comm::ShmDomain> domain);

// Any names of hosts, one per rank, to numbers counted from 0 in order of their lowest rank.
std::vector<int> number_hosts(const std::vector<std::string>& names);

}  // namespace fullshard
