#include "fullshard/optim/optimizer.h"

#include <ATen/core/grad_mode.h>

namespace fullshard {

Optimizer::Optimizer(ShardedModel model, int num_states, at::ScalarType state_dtype)
    : model_(std::move(model)), states_(model_.num_groups()) {
  for (int group = 0; group < model_.num_groups(); ++group) {
    for (int i = 0; i < num_states; ++i) {
      states_[group].push_back(model_.make_state(group, state_dtype));
    }
  }
}

void Optimizer::step() {
  at::NoGradGuard no_grad;
  ++num_steps_;
  model_.update([this](const std::vector<PieceView>& pieces, double clip) {
    std::vector<at::Tensor> states;
    for (const auto& piece : pieces) {
      states.clear();
      for (const auto& state : states_[piece.group]) {
        states.push_back(state.narrow(0, piece.offset, piece.numel()));
      }
      update(piece, states, static_cast<float>(clip));
    }
  });
}

}  // namespace fullshard
