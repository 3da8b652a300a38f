#include "fullshard/optim/torch_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

namespace fullshard {

PieceParameters::PieceParameters(ShardedModel model) : model_(std::move(model)) {
  for (const auto& piece : model_.pieces()) tensors_.push_back(piece.master.detach());
}

void PieceParameters::step(torch::optim::Optimizer& optimizer) {
  const auto pieces = model_.pieces();
  // The optimizer sees all pieces at once, inside the first batch; the rest finds them updated.
  bool has_stepped = false;
  const auto step_all = [&](double clip) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& gradient = pieces[i].gradient;
      if (!gradient.defined()) continue;
      if (clip != 1.0) gradient.mul_(clip);
      tensors_[i].mutable_grad() = gradient.to(tensors_[i].scalar_type());
    }
    optimizer.step();
    for (auto& tensor : tensors_) tensor.mutable_grad() = at::Tensor();
  };
  model_.update([&](const std::vector<PieceView>&, double clip) {
    if (!std::exchange(has_stepped, true)) step_all(clip);
  });
}

}  // namespace fullshard
