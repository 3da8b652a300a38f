// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/away_gradients.h"

#include <c10/core/ScalarType.h>

#include <utility>

#include "fullshard/engine/gradients/device_norm.h"

namespace fullshard::engine {

AwayGradients::AwayGradients(const GroupContext& context, const Layout& layout,
                             std::vector<Piece> pieces, at::ScalarType dtype)
    : context_(context),
      pieces_(std::move(pieces)),
      numel_(layout.shard_numel()),
      num_slots_(static_cast<int64_t>(layout.slots().size())),
      dtype_(dtype),
      memory_(context.tiers->host()->take(numel_ * static_cast<int64_t>(c10::elementSize(dtype)),
                                          tiers::Purpose::gradients)) {}

void AwayGradients::take_norms(const std::vector<at::Tensor>& values) {
  std::vector<GradientPiece> parts;
  for (size_t i = 0; i < values.size(); ++i) {
    parts.push_back({values[i], pieces_[i].slot});
  }
  for (const auto kind : {NormKind::sum_of_squares, NormKind::largest}) {
    norms_.at(static_cast<size_t>(kind)) =
        norms_on_device(kind, parts, num_slots_, context_.tiers->device());
  }
}

void AwayGradients::take(const std::vector<at::Tensor>& values,
                         const std::vector<at::Tensor>& memory) {
  const auto device = context_.tiers->device();
  auto& lane = context_.tiers->departures();
  if (device.is_cuda()) take_norms(values);
  int64_t bytes = 0;
  const auto copy = [&] {
    for (size_t i = 0; i < values.size(); ++i) {
      of_piece(pieces_[i]).copy_(values[i], /*non_blocking=*/true);
      bytes += static_cast<int64_t>(values[i].nbytes());
    }
  };
  if (device.is_cpu()) {
    copy();  // a lane of the CPU would run it when the memory is gone
  } else {
    lane.wait_for(memory::LaneMark::of_caller(device));
    lane.run(copy);
    left_ = lane.mark();
    context_.tiers->leaving().hold(left_, memory);
  }
  context_.counters->gradients_copied_out += bytes;
  is_away_ = true;
}

void AwayGradients::forget() {
  is_away_ = false;
  forget_norms();
}

}  // namespace fullshard::engine
