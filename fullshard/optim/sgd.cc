#include "fullshard/optim/sgd.h"

#include "fullshard/base/error.h"

namespace fullshard {

Sgd::Sgd(ShardedModel model, const SgdOptions& options)
    : Optimizer(std::move(model), /*num_states=*/options.momentum != 0 ? 1 : 0, at::kFloat),
      options_(options) {
  check(options.lr >= 0, "SGD: lr is {}, expected at least 0", options.lr);
  check(options.momentum >= 0, "SGD: momentum is {}, expected at least 0", options.momentum);
}

void Sgd::update(const PieceView& piece, const std::vector<at::Tensor>& states, float clip) {
  auto direction = piece.gradient * clip;
  if (options_.weight_decay != 0) direction.add_(piece.master, options_.weight_decay);
  if (!states.empty()) {
    // The first step starts from a zero buffer, which gives torch's "buffer = gradient".
    direction = states[0].mul_(options_.momentum).add_(direction);
  }
  piece.master.add_(direction, -options_.lr);
}

}  // namespace fullshard
