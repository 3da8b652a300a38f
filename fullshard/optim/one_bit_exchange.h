// SPDX-License-Identifier: Apache-2.0
// The mean of all ranks' momenta with one bit per element on the wire (Tang and others 2021), by
// the steps of DeepSpeed's compressed_allreduce: each rank sends signs and one scale per tensor,
// serves one chunk of every tensor by taking the mean of what came in, and sends that as signs and
// scales again. What rounding to signs lost is kept and added the next time, on both sides.
//
// A message of one rank, all tensors of the model together:
//
//   | scale of tensor 0, 1, … (fp32) | signs of chunk 0 of tensor 0, 1, … | chunk 1 … | 0-3 bytes |
//
// the second one has the served chunk only. Tensors are padded, as DeepSpeed's, so that chunks are
// whole bytes; the padding takes part in the scales.
//
// The cost, with W ranks and P padded elements: there is no all-to-all, so the first message is
// gathered whole, and (W-1) · P/8 bytes arrive at every rank where (W-1)/W · P/8 would do; with the
// second one that is 64 / (W+1) times less than a ring's all-reduce in fp32: 21 for 2 ranks, 7 for
// 8, nothing gained from 63 on.
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

class OneBitExchange {
 public:
  struct Tensor {
    std::string name = {};
    int64_t numel = 0;
  };
  // One tensor's values in a step.
  struct Values {
    Elements exp_avg;
    Elements gradient;  // none: the tensor is left alone, on every rank
  };

  // `tensors` are the same on every rank.
  OneBitExchange(Communicator ranks, std::shared_ptr<memory::Pool> pool,
                 std::vector<Tensor> tensors);

  // Collective: two all-gathers. Adds each rank's own gradient to its exp_avg, then makes that the
  // mean of the ranks', with the same bits on all. `values` are in the order of the tensors.
  void average(const MomentumStep& step, const std::vector<Values>& values);

  // 1-D, fp32; different on every rank.
  at::Tensor worker_error() const { return worker_.as(padded_numel_, at::kFloat); }
  at::Tensor server_error() const { return server_.as(padded_numel_ / num_ranks_, at::kFloat); }

 private:
  // A tensor's place in the errors and in the signs of one chunk.
  struct Place {
    int64_t padded = 0;
    int64_t chunk = 0;  // padded / ranks
    int64_t begin = 0;  // in the worker's error; divided by ranks, in the server's and in a chunk
  };
  class Messages;

  void send_own(const MomentumStep& step, const std::vector<Values>& values, Messages& messages);
  void check_same_gradients(const Messages& messages) const;
  void serve(const Messages& received, Messages& served);
  void spread(const Messages& served, const std::vector<Values>& values) const;
  int64_t chunk_bytes() const { return padded_numel_ / num_ranks_ / kSignsPerByte; }

  Communicator ranks_;
  std::shared_ptr<memory::Pool> pool_;
  std::vector<Tensor> tensors_;
  std::vector<Place> places_;
  int64_t num_ranks_;
  int64_t padded_numel_ = 0;
  memory::Block worker_;
  memory::Block server_;
};

}  // namespace fullshard::optim
