// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/one_bit_exchange.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/engine/gradients/gradient_factor.h"

namespace fullshard::optim {
namespace {

constexpr auto kName = "OneBitAdam's momenta";
constexpr float kNoGradient = -1;  // in the place of a scale, which is never negative

// DeepSpeed's: chunks are multiples of 8 elements and of the number of ranks.
int64_t granule_of(int64_t num_ranks) { return num_ranks * std::lcm(num_ranks, kSignsPerByte); }

float scale_of(double squares, int64_t numel) {
  return numel == 0 ? 0 : static_cast<float>(std::sqrt(squares) / std::sqrt(numel));
}

memory::Block zeroed(memory::Pool& pool, int64_t numel) {
  auto block = pool.take(numel * static_cast<int64_t>(sizeof(float)), tiers::Purpose::optimizer);
  block.as(numel, at::kFloat).zero_();
  return block;
}

}  // namespace

// One message of every rank, side by side as a gather leaves them.
class OneBitExchange::Messages {
 public:
  Messages(memory::Pool& pool, int64_t num_ranks, int64_t num_tensors, int64_t sign_bytes)
      : scale_bytes_(num_tensors * static_cast<int64_t>(sizeof(float))),
        bytes_(round_up(scale_bytes_ + sign_bytes, sizeof(float))),
        num_ranks_(num_ranks),
        block_(pool.take(bytes_ * num_ranks, tiers::Purpose::workspace)) {}

  float* scales(int64_t rank) const { return reinterpret_cast<float*>(begin_of(rank)); }
  uint8_t* signs(int64_t rank) const { return begin_of(rank) + scale_bytes_; }

  void gather(const Communicator& ranks) {
    const auto full = block_.as(bytes_ * num_ranks_, at::kByte);
    const auto own = full.narrow(0, bytes_ * ranks.rank(), bytes_);
    ranks.all_gather(full, own, kName).wait();
  }

 private:
  uint8_t* begin_of(int64_t rank) const {
    return static_cast<uint8_t*>(block_.data()) + rank * bytes_;
  }

  int64_t scale_bytes_, bytes_, num_ranks_;
  memory::Block block_;
};

OneBitExchange::OneBitExchange(Communicator ranks, std::shared_ptr<memory::Pool> pool,
                               std::vector<Tensor> tensors)
    : ranks_(std::move(ranks)),
      pool_(std::move(pool)),
      tensors_(std::move(tensors)),
      num_ranks_(ranks_.size()) {
  for (const auto& tensor : tensors_) {
    const int64_t padded = round_up(tensor.numel, granule_of(num_ranks_));
    places_.push_back({padded, padded / num_ranks_, padded_numel_});
    padded_numel_ += padded;
  }
  worker_ = zeroed(*pool_, padded_numel_);
  server_ = zeroed(*pool_, padded_numel_ / num_ranks_);
}

void OneBitExchange::average(const MomentumStep& step, const std::vector<Values>& values) {
  const auto num_tensors = static_cast<int64_t>(tensors_.size());
  Messages sent(*pool_, num_ranks_, num_tensors, num_ranks_ * chunk_bytes());
  send_own(step, values, sent);
  sent.gather(ranks_);
  check_same_gradients(sent);
  Messages served(*pool_, num_ranks_, num_tensors, chunk_bytes());
  serve(sent, served);
  served.gather(ranks_);
  spread(served, values);
}

void OneBitExchange::send_own(const MomentumStep& step, const std::vector<Values>& values,
                              Messages& messages) {
  auto* errors = worker_error().data_ptr<float>();
  auto* scales = messages.scales(ranks_.rank());
  auto* signs = messages.signs(ranks_.rank());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& place = places_[i];
    scales[i] = kNoGradient;
    if (!values[i].gradient) continue;
    const int64_t numel = tensors_[i].numel;
    auto* error = errors + place.begin;
    const double squares = add_momentum(step, values[i].gradient, values[i].exp_avg, error, numel) +
                           sum_of_error_squares(error + numel, place.padded - numel);
    scales[i] = scale_of(squares, place.padded);
    for (int64_t chunk = 0; chunk < num_ranks_; ++chunk) {
      take_signs(signs + chunk * chunk_bytes() + place.begin / num_ranks_ / kSignsPerByte,
                 scales[i], error + chunk * place.chunk, place.chunk);
    }
  }
}

// Ranks that update different tensors would drift apart in silence.
void OneBitExchange::check_same_gradients(const Messages& messages) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const bool first_has = messages.scales(0)[i] != kNoGradient;
    for (int64_t rank = 1; rank < num_ranks_; ++rank) {
      const bool has = messages.scales(rank)[i] != kNoGradient;
      check(
          has == first_has,
          "OneBitAdam: parameter '{}' has a gradient on rank {} and none on rank {}; run the same "
          "units on every rank",
          tensors_[i].name, has ? rank : 0, has ? 0 : rank);
    }
  }
}

void OneBitExchange::serve(const Messages& received, Messages& served) {
  auto* errors = server_error().data_ptr<float>();
  auto* scales = served.scales(ranks_.rank());
  auto* signs = served.signs(ranks_.rank());
  const auto share = static_cast<float>(engine::mean_factor(num_ranks_));
  std::vector<SignedRow> rows(num_ranks_);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& place = places_[i];
    scales[i] = kNoGradient;
    if (received.scales(0)[i] == kNoGradient) continue;
    const int64_t first = place.begin / num_ranks_;
    for (int64_t rank = 0; rank < num_ranks_; ++rank) {
      const auto* chunk = received.signs(rank) + ranks_.rank() * chunk_bytes();
      rows[rank] = {chunk + first / kSignsPerByte, received.scales(rank)[i] * share};
    }
    const double squares = add_signed_rows(rows, errors + first, place.chunk);
    scales[i] = scale_of(squares, place.chunk);
    take_signs(signs + first / kSignsPerByte, scales[i], errors + first, place.chunk);
  }
}

void OneBitExchange::spread(const Messages& served, const std::vector<Values>& values) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& place = places_[i];
    if (!values[i].gradient) continue;
    for (int64_t rank = 0; rank < num_ranks_; ++rank) {
      const int64_t begin = rank * place.chunk;
      const int64_t numel = std::min(place.chunk, tensors_[i].numel - begin);
      if (numel <= 0) break;
      const auto* signs = served.signs(rank) + place.begin / num_ranks_ / kSignsPerByte;
      spread_signs(values[i].exp_avg.from(begin), {signs, served.scales(rank)[i]}, numel);
    }
  }
}

}  // namespace fullshard::optim
