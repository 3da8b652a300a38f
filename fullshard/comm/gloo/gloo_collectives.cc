// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_collectives.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "fullshard/comm/gloo/gloo_reduce.h"

namespace fullshard::comm {
namespace {

class DirectCollectives : public GlooCollectives {
 public:
  DirectCollectives(int rank, std::vector<int> hosts) : rank_(rank), hosts_(std::move(hosts)) {}

  void all_gather(const GlooTurn& turn, const at::Tensor& rows,
                  const at::Tensor& shard) const override {
    if (is_carried(shard.numel(), shard.scalar_type())) {
      const at::Tensor all = turn.meet(as_bytes(shard));
      rows.copy_(from_bytes(all, rows.scalar_type()).view(rows.sizes()));
      return;
    }
    turn.meet();
    // A window of a larger buffer has gaps between its rows, which gloo cannot skip.
    const at::Tensor full = rows.is_contiguous() ? rows : at::empty(rows.sizes(), rows.options());
    turn.group().all_gather(as_bytes(full.view({full.numel()})), as_bytes(shard));
    if (!rows.is_contiguous()) rows.copy_(full);
  }

  void reduce_scatter(const GlooTurn& turn, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) const override {
    gloo_reduce_scatter(turn, shard, rows, {rank_, hosts_, options});
  }

  void all_to_all(const GlooTurn& turn, const at::Tensor& received,
                  const at::Tensor& sent) const override {
    turn.meet();
    const bool is_whole = received.is_contiguous();
    const at::Tensor whole = is_whole ? received : at::empty(received.sizes(), received.options());
    exchange_rows(turn, whole, sent.contiguous());
    if (!is_whole) received.copy_(whole);
  }

  void broadcast(const GlooTurn& turn, const at::Tensor& tensor, int root) const override {
    if (is_carried(tensor.numel(), tensor.scalar_type())) {
      const at::Tensor all = turn.meet(as_bytes(tensor));
      if (rank_ != root) tensor.copy_(from_bytes(all.select(0, root), tensor.scalar_type()));
      return;
    }
    turn.meet();
    turn.group().broadcast(as_bytes(tensor), root);
  }

  void barrier(const GlooTurn& turn) const override { turn.meet(); }

 private:
  const int rank_;
  const std::vector<int> hosts_;
};

}  // namespace

std::shared_ptr<const GlooCollectives> make_direct_collectives(int rank, std::vector<int> hosts) {
  return std::make_shared<DirectCollectives>(rank, std::move(hosts));
}

void exchange_rows(const GlooTurn& turn, const at::Tensor& received, const at::Tensor& sent) {
  const int64_t row_bytes = sent.size(1) * static_cast<int64_t>(sent.element_size());
  const std::vector<int64_t> counts(static_cast<size_t>(sent.size(0)), row_bytes);
  turn.group().all_to_all(as_bytes(received.view({-1})), counts, as_bytes(sent.view({-1})), counts);
}

at::Tensor as_bytes(const at::Tensor& line) { return line.view(at::kByte); }

at::Tensor from_bytes(const at::Tensor& bytes, at::ScalarType dtype) {
  return bytes.reshape({-1}).view(dtype);
}

bool is_carried(int64_t numel, at::ScalarType dtype) {
  return numel * static_cast<int64_t>(c10::elementSize(dtype)) <= GlooLane::kMostCarried;
}

}  // namespace fullshard::comm
