// SPDX-License-Identifier: Apache-2.0
// c10d's gloo process group: bytes between the ranks of one group. The only file that knows gloo.
// Calls come from one thread; cut() and give_up() from any.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/store/rendezvous.h"

namespace fullshard::comm {

// Where a rank listens for the others: an address of this host or a network interface, else the
// address that this host's name has.
struct GlooDevice {
  std::string address = {};
  std::string interface = {};
};

class GlooGroup {
 public:
  // Collective: connects every rank of the group with every other.
  GlooGroup(const Store& store, int rank, int size, const GlooDevice& device,
            std::chrono::milliseconds timeout);
  ~GlooGroup();
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  // Each returns when this rank's part is done, however long that takes, or throws gloo's own
  // exception. Tensors are 1-D contiguous bytes.
  void all_gather(at::Tensor full, at::Tensor own);
  // Counts are bytes per rank.
  void all_to_all(const at::Tensor& received, const std::vector<int64_t>& received_counts,
                  const at::Tensor& sent, const std::vector<int64_t>& sent_counts);
  void broadcast(at::Tensor tensor, int root);

  // How many of these calls all groups of this process have made: what tests count.
  static int64_t num_calls();

  // Closes the connections: what other ranks have in flight with this one fails.
  void cut() noexcept;
  // Ends this and every later exchange with an exception: an all-to-all, and so the meeting that
  // every call begins with; not a broadcast, nor a gather of three or more.
  void give_up() noexcept;

 private:
  class Gloo;
  std::unique_ptr<Gloo> gloo_;
};

}  // namespace fullshard::comm
