// SPDX-License-Identifier: Apache-2.0
// The exchange by loops over host memory.
#include <algorithm>
#include <cmath>
#include <utility>

#include "fullshard/optim/one_bit_exchange.h"

namespace fullshard::optim {
namespace {

constexpr float kNoGradient = -1;  // in the place of a scale, which is never negative

float scale_of(double squares, int64_t numel) {
  return numel == 0 ? 0 : static_cast<float>(std::sqrt(squares) / std::sqrt(numel));
}

Elements exchanged_elements(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr(), tensor.scalar_type()};
}

class HostOneBitExchange : public OneBitExchange {
 public:
  using OneBitExchange::OneBitExchange;

  void average(const MomentumStep& step, const std::vector<Values>& values) override {
    const Messages received(pool(), layout());
    {
      const Messages sent(pool(), layout());
      write_own(step, values, sent);
      sent.send(ranks(), received);
    }
    check_same_gradients(gradients_of(received));
    const Messages served(pool(), layout());
    serve(received, served);
    served.gather(ranks());
    spread(served, values);
  }

 private:
  static float* scales(const Messages& messages, int64_t rank) {
    return reinterpret_cast<float*>(messages.begin_of(rank));
  }
  uint8_t* signs(const Messages& messages, int64_t rank, size_t tensor) const {
    return messages.begin_of(rank) + layout().scale_bytes() +
           layout().first_in_chunk(tensor) / kSignsPerByte;
  }

  void write_own(const MomentumStep& step, const std::vector<Values>& values,
                 const Messages& messages) const {
    auto* errors = worker_error().data_ptr<float>();
    const int64_t num_ranks = layout().num_ranks;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& place = layout().places[i];
      const auto gradient = exchanged_elements(values[i].gradient);
      float scale = kNoGradient;
      auto* error = errors + place.begin;
      if (gradient) {
        const auto exp_avg = exchanged_elements(values[i].exp_avg);
        const double squares =
            add_momentum(step, gradient, exp_avg, error, place.numel) +
            sum_of_error_squares(error + place.numel, place.padded - place.numel);
        scale = scale_of(squares, place.padded);
      }
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        scales(messages, rank)[i] = scale;
        if (!gradient) continue;
        take_signs(signs(messages, rank, i), scale, error + rank * place.chunk, place.chunk);
      }
    }
  }

  std::vector<std::vector<bool>> gradients_of(const Messages& received) const {
    std::vector<std::vector<bool>> has;
    for (int64_t rank = 0; rank < layout().num_ranks; ++rank) {
      const float* own = scales(received, rank);
      std::vector<bool> of_rank;
      for (int64_t i = 0; i < layout().num_tensors(); ++i) of_rank.push_back(own[i] != kNoGradient);
      has.push_back(std::move(of_rank));
    }
    return has;
  }

  void serve(const Messages& received, const Messages& served) const {
    auto* errors = server_error().data_ptr<float>();
    auto* own_scales = scales(served, ranks().rank());
    std::vector<SignedRow> rows(static_cast<size_t>(layout().num_ranks));
    for (size_t i = 0; i < layout().places.size(); ++i) {
      const auto& place = layout().places[i];
      own_scales[i] = kNoGradient;
      if (scales(received, 0)[i] == kNoGradient) continue;
      auto* error = errors + layout().first_in_chunk(i);
      for (int64_t rank = 0; rank < layout().num_ranks; ++rank) {
        rows[static_cast<size_t>(rank)] = {signs(received, rank, i),
                                           scales(received, rank)[i] * share()};
      }
      own_scales[i] = scale_of(add_signed_rows(rows, error, place.chunk), place.chunk);
      take_signs(signs(served, ranks().rank(), i), own_scales[i], error, place.chunk);
    }
  }

  void spread(const Messages& served, const std::vector<Values>& values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& place = layout().places[i];
      if (!values[i].gradient.defined()) continue;
      const auto exp_avg = exchanged_elements(values[i].exp_avg);
      for (int64_t rank = 0; rank < layout().num_ranks; ++rank) {
        const int64_t begin = rank * place.chunk;
        const int64_t numel = std::min(place.chunk, place.numel - begin);
        if (numel <= 0) break;
        spread_signs(exp_avg.from(begin), {signs(served, rank, i), scales(served, rank)[i]}, numel);
      }
    }
  }
};

}  // namespace

std::unique_ptr<OneBitExchange> make_host_exchange(Communicator ranks,
                                                   std::shared_ptr<memory::Pool> pool,
                                                   std::vector<OneBitTensor> tensors) {
  return std::make_unique<HostOneBitExchange>(std::move(ranks), std::move(pool),
                                              std::move(tensors));
}

}  // namespace fullshard::optim
