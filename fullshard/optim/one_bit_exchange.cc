// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/one_bit_exchange.h"

#include <numeric>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/engine/gradients/gradient_factor.h"

namespace fullshard::optim {
namespace {

constexpr auto kName = "OneBitAdam's momenta";

// DeepSpeed's: chunks are multiples of 8 elements and of the number of ranks.
int64_t granule_of(int64_t num_ranks) { return num_ranks * std::lcm(num_ranks, kSignsPerByte); }

memory::Block zeroed(memory::Pool& pool, int64_t numel) {
  auto block = pool.take(numel * static_cast<int64_t>(sizeof(float)), tiers::Purpose::optimizer);
  block.as(numel, at::kFloat).zero_();
  return block;
}

}  // namespace

OneBitLayout::OneBitLayout(const std::vector<OneBitTensor>& tensors, int64_t ranks)
    : num_ranks(ranks) {
  for (const auto& tensor : tensors) {
    const int64_t padded = round_up(tensor.numel, granule_of(num_ranks));
    places.push_back({tensor.numel, padded, padded / num_ranks, padded_numel});
    padded_numel += padded;
  }
}

int64_t OneBitLayout::message_bytes() const {
  return round_up(scale_bytes() + chunk_bytes(), sizeof(float));
}

OneBitExchange::Messages::Messages(memory::Pool& pool, const OneBitLayout& layout)
    : bytes_(layout.message_bytes()),
      num_ranks_(layout.num_ranks),
      block_(pool.take(bytes_ * num_ranks_, tiers::Purpose::workspace)) {}

at::Tensor OneBitExchange::Messages::rows() const {
  return block_.as(bytes_ * num_ranks_, at::kByte).view({num_ranks_, bytes_});
}

void OneBitExchange::Messages::gather(const Communicator& ranks) const {
  ranks.all_gather(rows(), rows().select(0, ranks.rank()), kName).wait();
}

void OneBitExchange::Messages::send(const Communicator& ranks, const Messages& received) const {
  ranks.all_to_all(received.rows(), rows(), kName).wait();
}

OneBitExchange::OneBitExchange(Communicator ranks, std::shared_ptr<memory::Pool> pool,
                               std::vector<OneBitTensor> tensors)
    : ranks_(std::move(ranks)),
      pool_(std::move(pool)),
      tensors_(std::move(tensors)),
      layout_(tensors_, ranks_.size()),
      worker_(zeroed(*pool_, layout_.padded_numel)),
      server_(zeroed(*pool_, layout_.chunk_numel())) {}

float OneBitExchange::share() const {
  return static_cast<float>(engine::mean_factor(layout_.num_ranks));
}

void OneBitExchange::check_same_gradients(const std::vector<std::vector<bool>>& has) const {
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    for (size_t rank = 1; rank < has.size(); ++rank) {
      const bool here = has[rank][tensor];
      check(
          here == has[0][tensor],
          "OneBitAdam: parameter '{}' has a gradient on rank {} and none on rank {}; run the same "
          "units on every rank",
          tensors_[tensor].name, here ? rank : 0, here ? 0 : rank);
    }
  }
}

}  // namespace fullshard::optim
