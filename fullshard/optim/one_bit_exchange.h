// SPDX-License-Identifier: Apache-2.0
// The mean of all ranks' momenta with one bit per element on the wire (Tang and others 2021), by
// the steps of DeepSpeed's compressed_allreduce: each rank sends signs and one scale per tensor,
// serves one chunk of every tensor by taking the mean of what came in, and sends that as signs and
// scales again. What rounding to signs lost is kept and added the next time, on both sides.
//
// A message from one rank to another, all tensors of the model together:
//
//   | scale of tensor 0, 1, … (fp32) | signs of the receiver's chunk of tensor 0, 1, … | 0-3 bytes
//   |
//
// The second one has the sender's chunk instead, and goes to everybody. Tensors are padded, as
// DeepSpeed's, so that chunks are whole bytes; the padding takes part in the scales.
//
// The cost, with W ranks and P padded elements: an all-to-all and a gather, each of which brings a
// rank (W-1)/W · P/8 bytes: a 32nd of what a ring's all-reduce in fp32 does.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/communicator.h"
#include "fullshard/memory/pool.h"
#include "fullshard/optim/kernels/one_bit_kernels.h"

namespace fullshard::optim {

struct OneBitTensor {
  std::string name = {};
  int64_t numel = 0;
};

// Where tensors lie in the errors and in messages.
struct OneBitLayout {
  struct Place {
    int64_t numel = 0;
    int64_t padded = 0;
    int64_t chunk = 0;  // padded / ranks
    int64_t begin = 0;  // in the worker's error; divided by ranks, in the server's and in a chunk
  };

  OneBitLayout(const std::vector<OneBitTensor>& tensors, int64_t num_ranks);

  int64_t num_ranks;
  std::vector<Place> places;
  int64_t padded_numel = 0;

  int64_t num_tensors() const { return static_cast<int64_t>(places.size()); }
  int64_t first_in_chunk(size_t tensor) const { return places[tensor].begin / num_ranks; }
  int64_t chunk_numel() const { return padded_numel / num_ranks; }
  int64_t chunk_bytes() const { return chunk_numel() / kSignsPerByte; }
  int64_t scale_bytes() const { return num_tensors() * static_cast<int64_t>(sizeof(float)); }
  int64_t message_bytes() const;
};

class OneBitExchange {
 public:
  // One tensor's values in a step; of `gradient` the part of exp_avg.
  struct Values {
    at::Tensor exp_avg;
    at::Tensor gradient = {};  // undefined: the tensor is left alone, on every rank
  };

  // `tensors` are the same on every rank. The pool's memory decides where this computes.
  OneBitExchange(Communicator ranks, std::shared_ptr<memory::Pool> pool,
                 std::vector<OneBitTensor> tensors);
  virtual ~OneBitExchange() = default;

  // Collective: an all-to-all and an all-gather. Adds each rank's own gradient to its exp_avg, then
  // makes that the mean of the ranks', with the same bits on all. `values` are in the order of the
  // tensors.
  virtual void average(const MomentumStep& step, const std::vector<Values>& values) = 0;

  // 1-D, fp32; different on every rank.
  at::Tensor worker_error() const { return worker_.as(layout_.padded_numel, at::kFloat); }
  at::Tensor server_error() const { return server_.as(layout_.chunk_numel(), at::kFloat); }

 protected:
  // A message to or from every rank, side by side; bytes [ranks, message_bytes].
  class Messages {
   public:
    Messages(memory::Pool& pool, const OneBitLayout& layout);

    at::Tensor rows() const;
    // Of host memory.
    uint8_t* begin_of(int64_t rank) const {
      return static_cast<uint8_t*>(block_.data()) + rank * bytes_;
    }
    // Everybody's own row to everybody.
    void gather(const Communicator& ranks) const;
    // Each row to its rank.
    void send(const Communicator& ranks, const Messages& received) const;

   private:
    int64_t bytes_, num_ranks_;
    memory::Block block_;
  };

  // Ranks that update different tensors would drift apart in silence. has[rank][tensor].
  void check_same_gradients(const std::vector<std::vector<bool>>& has) const;

  const Communicator& ranks() const { return ranks_; }
  memory::Pool& pool() const { return *pool_; }
  const OneBitLayout& layout() const { return layout_; }
  // Each rank's part of a mean.
  float share() const;

 private:
  Communicator ranks_;
  std::shared_ptr<memory::Pool> pool_;
  std::vector<OneBitTensor> tensors_;
  OneBitLayout layout_;
  memory::Block worker_;
  memory::Block server_;
};

// By loops over host memory.
std::unique_ptr<OneBitExchange> make_host_exchange(Communicator ranks,
                                                   std::shared_ptr<memory::Pool> pool,
                                                   std::vector<OneBitTensor> tensors);
// By libtorch's operators, wherever the memory is: for GPUs. Rounds norms in its own way. The host
// does not wait for the device; which tensors have gradients the ranks tell each other over the
// host.
std::unique_ptr<OneBitExchange> make_device_exchange(Communicator ranks,
                                                     std::shared_ptr<memory::Pool> pool,
                                                     std::vector<OneBitTensor> tensors);

}  // namespace fullshard::optim
