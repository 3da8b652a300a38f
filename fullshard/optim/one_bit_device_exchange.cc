// SPDX-License-Identifier: Apache-2.0
// The exchange by libtorch's operators. Signs are packed and unpacked for all tensors at once; what
// has a scale of its own is done tensor by tensor, a handful of launches each, and nothing of it is
// waited for.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>

#include "fullshard/optim/one_bit_exchange.h"

namespace fullshard::optim {
namespace {

at::Tensor bit_weights(at::Device device) {
  return at::pow(2, at::arange(kSignsPerByte, at::TensorOptions().dtype(at::kLong)))
      .to(at::kByte)
      .to(device);
}

class DeviceOneBitExchange : public OneBitExchange {
 public:
  DeviceOneBitExchange(Communicator ranks, std::shared_ptr<memory::Pool> pool,
                       std::vector<OneBitTensor> tensors)
      : OneBitExchange(std::move(ranks), std::move(pool), std::move(tensors)),
        weights_(bit_weights(worker_error().device())) {}

  void average(const MomentumStep& step, const std::vector<Values>& values) override {
    agree_on_gradients(values);
    const Messages received(pool(), layout());
    {
      const Messages sent(pool(), layout());
      write_own(step, values, sent);
      sent.send(ranks(), received);
    }
    const Messages served(pool(), layout());
    serve(values, received, served);
    served.gather(ranks());
    spread(served, values);
  }

 private:
  // fp32 [ranks, tensors], and bytes [ranks, chunk bytes].
  at::Tensor scales(const Messages& messages) const {
    return messages.rows().narrow(1, 0, layout().scale_bytes()).view(at::kFloat);
  }
  at::Tensor signs(const Messages& messages) const {
    return messages.rows().narrow(1, layout().scale_bytes(), layout().chunk_bytes());
  }

  // [rows, n], one of them set where a value is not negative, to [rows, n / 8].
  at::Tensor packed(const at::Tensor& is_positive) const {
    const auto bytes = is_positive.to(at::kByte).view({is_positive.size(0), -1, kSignsPerByte});
    return bytes.mul(weights_).sum(-1, /*keepdim=*/false, at::kByte);
  }
  // And back, as 1 and -1.
  at::Tensor unpacked(const at::Tensor& bytes) const {
    const auto bits = bytes.unsqueeze(-1).bitwise_and(weights_).ne(0);
    return bits.view({bytes.size(0), -1}).to(at::kFloat).mul_(2).sub_(1);
  }

  // Over the host: nobody looks at a scale on the device.
  void agree_on_gradients(const std::vector<Values>& values) const {
    const int64_t num_tensors = layout().num_tensors();
    const auto own = at::zeros({num_tensors}, at::kByte);
    for (size_t i = 0; i < values.size(); ++i) {
      own.data_ptr<uint8_t>()[i] = values[i].gradient.defined() ? 1 : 0;
    }
    const auto all = at::zeros({layout().num_ranks, num_tensors}, at::kByte);
    ranks().all_gather(all, own, "OneBitAdam's gradients").wait();
    std::vector<std::vector<bool>> has;
    for (int64_t rank = 0; rank < layout().num_ranks; ++rank) {
      const auto* first = all.const_data_ptr<uint8_t>() + rank * num_tensors;
      has.emplace_back(first, first + num_tensors);
    }
    check_same_gradients(has);
  }

  // The scale of each of these, fp32 [n]: of values that are left alone nobody looks at it.
  static at::Tensor scales_of(const std::vector<at::Tensor>& errors) {
    std::vector<at::Tensor> found;
    for (const at::Tensor& error : errors) {
      const double root = std::sqrt(static_cast<double>(std::max<int64_t>(error.numel(), 1)));
      found.push_back(at::linalg_vector_norm(error).div_(root));
    }
    return at::stack(found);
  }

  // Takes ± scale from each: what is left is the error.
  static void take_signs_of(const at::Tensor& error, const at::Tensor& is_positive,
                            const at::Tensor& scale) {
    error.sub_(is_positive.to(at::kFloat).mul_(2).sub_(1).mul_(scale));
  }

  void write_own(const MomentumStep& step, const std::vector<Values>& values,
                 const Messages& messages) const {
    std::vector<at::Tensor> errors, by_rank;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& place = layout().places[i];
      errors.push_back(worker_error().narrow(0, place.begin, place.padded));
      if (!values[i].gradient.defined()) continue;
      // Which may rest in host memory.
      const auto momentum = values[i]
                                .exp_avg
                                .to(worker_error().device(), at::kFloat,
                                    /*non_blocking=*/false, /*copy=*/true)
                                .mul_(step.beta1);
      momentum.add_(values[i].gradient.to(at::kFloat), step.clip * (1 - step.beta1));
      errors.back().narrow(0, 0, place.numel).add_(momentum);
    }
    const auto found = scales_of(errors);
    scales(messages).copy_(found.expand({layout().num_ranks, -1}));
    const auto is_positive = worker_error().lt(0).logical_not_();
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& place = layout().places[i];
      const auto own = is_positive.narrow(0, place.begin, place.padded);
      by_rank.push_back(own.view({layout().num_ranks, place.chunk}));
      if (values[i].gradient.defined()) {
        take_signs_of(errors[i], own, found[static_cast<int64_t>(i)]);
      }
    }
    signs(messages).copy_(packed(at::cat(by_rank, 1)));
  }

  void serve(const std::vector<Values>& values, const Messages& received,
             const Messages& served) const {
    const auto sent = unpacked(signs(received));
    const auto factors = scales(received).mul(share());
    std::vector<at::Tensor> errors;
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t first = layout().first_in_chunk(i), chunk = layout().places[i].chunk;
      errors.push_back(server_error().narrow(0, first, chunk));
      if (!values[i].gradient.defined()) continue;
      const auto factor = factors.narrow(1, static_cast<int64_t>(i), 1);
      errors.back().add_(sent.narrow(1, first, chunk).mul(factor).sum(0));
    }
    const auto found = scales_of(errors);
    const int64_t own_rank = ranks().rank();
    scales(served).select(0, own_rank).copy_(found);
    const auto is_positive = server_error().lt(0).logical_not_();
    signs(served).select(0, own_rank).copy_(packed(is_positive.unsqueeze(0)).squeeze(0));
    for (size_t i = 0; i < values.size(); ++i) {
      if (!values[i].gradient.defined()) continue;
      take_signs_of(errors[i],
                    is_positive.narrow(0, layout().first_in_chunk(i), layout().places[i].chunk),
                    found[static_cast<int64_t>(i)]);
    }
  }

  void spread(const Messages& served, const std::vector<Values>& values) const {
    const auto sent = unpacked(signs(served));
    const auto factors = scales(served);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& place = layout().places[i];
      if (!values[i].gradient.defined()) continue;
      const auto means = sent.narrow(1, layout().first_in_chunk(i), place.chunk)
                             .mul(factors.narrow(1, static_cast<int64_t>(i), 1));
      values[i].exp_avg.copy_(means.reshape({-1}).narrow(0, 0, place.numel));
    }
  }

  at::Tensor weights_;  // of the bits of a byte
};

}  // namespace

std::unique_ptr<OneBitExchange> make_device_exchange(Communicator ranks,
                                                     std::shared_ptr<memory::Pool> pool,
                                                     std::vector<OneBitTensor> tensors) {
  return std::make_unique<DeviceOneBitExchange>(std::move(ranks), std::move(pool),
                                                std::move(tensors));
}

}  // namespace fullshard::optim
