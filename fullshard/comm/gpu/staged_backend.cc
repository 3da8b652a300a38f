// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gpu/staged_backend.h"

#include <c10/core/InferenceMode.h>

#include <utility>

namespace fullshard::comm {
namespace {

// Brings the host's result to the device once it is there.
class StagedWork : public Work::Pending {
 public:
  StagedWork(Work work, at::Tensor from, at::Tensor to, at::Tensor input)
      : work_(std::move(work)),
        from_(std::move(from)),
        to_(std::move(to)),
        input_(std::move(input)) {}

  void wait() override {
    wait_for_result();
    work_.wait();
    from_ = at::Tensor();
    input_ = at::Tensor();
  }
  void wait_for_result() override {
    if (std::exchange(is_delivered_, true)) return;
    work_.wait_for_result();
    // A tensor that was made in such a mode may be waited for outside it.
    const c10::InferenceMode like_the_caller;
    to_.copy_(from_);
  }
  void advance() override { work_.advance(); }

 private:
  Work work_;
  at::Tensor from_, to_, input_;
  bool is_delivered_ = false;
};

}  // namespace

at::Tensor StagedBackend::on_host(const at::Tensor& tensor, bool with_values) {
  auto copy = host_->allocate(tensor.numel(), tensor.scalar_type()).view(tensor.sizes());
  if (with_values) copy.copy_(tensor);
  return copy;
}

Work StagedBackend::all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) {
  auto all = on_host(rows, false);
  const auto own = all.select(0, rank());
  own.copy_(shard);
  auto work = host_->all_gather(call, all, own);
  return Work(std::make_unique<StagedWork>(std::move(work), all, rows, own));
}

Work StagedBackend::reduce_scatter(const Call& call, const at::Tensor& shard,
                                   const at::Tensor& rows, const ReduceOptions& options) {
  const auto input = on_host(rows, true);
  auto result = on_host(shard, options.accumulate);
  ReduceOptions own = options;
  own.on_result = {};  // would be shown host memory in the place of the device's
  auto work = host_->reduce_scatter(call, result, input, own);
  return Work(std::make_unique<StagedWork>(std::move(work), result, shard, input));
}

Work StagedBackend::all_to_all(const Call& call, const at::Tensor& received,
                               const at::Tensor& sent) {
  const auto input = on_host(sent, true);
  auto result = on_host(received, false);
  auto work = host_->all_to_all(call, result, input);
  return Work(std::make_unique<StagedWork>(std::move(work), result, received, input));
}

Work StagedBackend::broadcast(const Call& call, const at::Tensor& tensor, int root) {
  const auto copy = on_host(tensor, rank() == root);
  auto work = host_->broadcast(call, copy, root);
  return Work(std::make_unique<StagedWork>(std::move(work), copy, tensor, copy));
}

}  // namespace fullshard::comm
