// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_lane.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::comm {
namespace {

constexpr auto kTermsBytes = static_cast<int64_t>(sizeof(CallTerms));

}  // namespace

GlooLane::GlooLane(std::unique_ptr<GlooGroup> group, std::vector<int> ranks, std::string name)
    : group_(std::move(group)),
      ranks_(std::move(ranks)),
      name_(std::move(name)),
      sent_(at::zeros({size(), kFirstMessage}, at::kByte)),
      received_(at::zeros({size(), kFirstMessage}, at::kByte)) {}

at::Tensor GlooLane::meet(const CallTerms& terms, const at::Tensor& payload) {
  const int64_t bytes = payload.defined() ? payload.numel() : 0;
  for (int rank = 0; rank < size(); ++rank) {
    auto* message = sent_.mutable_data_ptr<uint8_t>() + rank * kFirstMessage;
    std::memcpy(message, &terms, sizeof terms);
    if (bytes > 0) {
      std::memcpy(message + kTermsBytes, payload.const_data_ptr(), static_cast<size_t>(bytes));
    }
  }
  const std::vector<int64_t> counts(ranks_.size(), kFirstMessage);
  group_->all_to_all(received_.view({-1}), counts, sent_.view({-1}), counts);
  std::vector<CallTerms> all(ranks_.size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::memcpy(&all[rank], received_.const_data_ptr<uint8_t>() + rank * kFirstMessage,
                sizeof(CallTerms));
  }
  if (const auto message = find_disagreement(all, ranks_, name_)) throw Disagreement(*message);
  return received_.narrow(1, kTermsBytes, bytes).contiguous();
}

}  // namespace fullshard::comm
