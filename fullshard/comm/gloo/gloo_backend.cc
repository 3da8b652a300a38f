// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_backend.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "fullshard/comm/gloo/gloo_link_peers.h"

namespace fullshard::comm {

GlooBackend::GlooBackend(std::shared_ptr<GlooWorker> worker,
                         std::shared_ptr<const GlooCollectives> collectives)
    : worker_(std::move(worker)), collectives_(std::move(collectives)) {
  worker_->start();
}

GlooBackend::~GlooBackend() { worker_->stop(); }

int GlooBackend::rank() const { return worker_->members().rank; }
int GlooBackend::size() const { return worker_->members().size(); }

// Ranks meet for an empty tensor too, though nothing is moved.
template <class Act>
Work GlooBackend::issue(const Call& call, const CallTerms& terms, const at::Tensor& tensor,
                        Act act) {
  if (tensor.numel() > 0) return worker_->issue(call, terms, std::move(act));
  return worker_->issue(call, terms, [collectives = collectives_](const GlooTurn& turn) {
    collectives->barrier(turn);
  });
}

Work GlooBackend::all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) {
  CallTerms terms(call);
  terms.dtype = static_cast<int32_t>(rows.scalar_type());
  return issue(call, terms, rows, [collectives = collectives_, rows, shard](const GlooTurn& turn) {
    collectives->all_gather(turn, rows, shard);
  });
}

Work GlooBackend::reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                                 const ReduceOptions& options) {
  CallTerms terms(call);
  terms.dtype = static_cast<int32_t>(rows.scalar_type());
  terms.output_dtype = static_cast<int32_t>(shard.scalar_type());
  terms.op = static_cast<int32_t>(options.op);
  terms.slices = options.slices;
  terms.accumulate = options.accumulate ? 1 : 0;
  return issue(call, terms, rows,
               [collectives = collectives_, shard, rows, options](const GlooTurn& turn) {
                 collectives->reduce_scatter(turn, shard, rows, options);
               });
}

Work GlooBackend::all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) {
  CallTerms terms(call);
  terms.dtype = static_cast<int32_t>(sent.scalar_type());
  return issue(call, terms, sent,
               [collectives = collectives_, received, sent](const GlooTurn& turn) {
                 collectives->all_to_all(turn, received, sent);
               });
}

Work GlooBackend::broadcast(const Call& call, const at::Tensor& tensor, int root) {
  CallTerms terms(call);
  terms.dtype = static_cast<int32_t>(tensor.scalar_type());
  terms.root = root;
  return issue(call, terms, tensor,
               [collectives = collectives_, tensor, root](const GlooTurn& turn) {
                 collectives->broadcast(turn, tensor, root);
               });
}

void GlooBackend::barrier(const Call& call) {
  worker_
      ->issue(call, CallTerms(call),
              [collectives = collectives_](const GlooTurn& turn) { collectives->barrier(turn); })
      .wait();
}

at::Tensor GlooBackend::allocate(int64_t numel, at::ScalarType dtype) {
  return at::empty({numel}, at::TensorOptions().dtype(dtype));
}

std::shared_ptr<LinkPeers> GlooBackend::make_link_peers() {
  return std::make_shared<GlooLinkPeers>(worker_->members(), worker_->watch(), worker_->timeouts());
}

}  // namespace fullshard::comm
