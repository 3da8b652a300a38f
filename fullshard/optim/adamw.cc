#include "fullshard/optim/adamw.h"

#include <cmath>

#include "fullshard/base/error.h"
#include "fullshard/optim/adamw_kernels.h"

namespace fullshard {
namespace {

void check_options(const AdamWOptions& options) {
  check(options.lr >= 0, "AdamW: lr is {}, expected at least 0", options.lr);
  check(options.beta1 >= 0 && options.beta1 < 1, "AdamW: beta1 is {}, expected 0 <= beta1 < 1",
        options.beta1);
  check(options.beta2 >= 0 && options.beta2 < 1, "AdamW: beta2 is {}, expected 0 <= beta2 < 1",
        options.beta2);
  check(options.epsilon >= 0, "AdamW: epsilon is {}, expected at least 0", options.epsilon);
  check(options.weight_decay >= 0, "AdamW: weight_decay is {}, expected at least 0",
        options.weight_decay);
}

}  // namespace

AdamW::AdamW(ShardedModel model, const AdamWOptions& options)
    : Optimizer(std::move(model), /*num_states=*/2, at::kFloat), options_(options) {
  check_options(options);
}

void AdamW::update(const PieceView& piece, const std::vector<at::Tensor>& states, float clip) {
  const auto step = static_cast<double>(num_steps());
  AdamWStep constants;
  constants.clip = clip;
  constants.beta1 = static_cast<float>(options_.beta1);
  constants.beta2 = static_cast<float>(options_.beta2);
  constants.decay = static_cast<float>(1 - options_.lr * options_.weight_decay);
  constants.step_size = static_cast<float>(options_.lr / (1 - std::pow(options_.beta1, step)));
  constants.root_correction = static_cast<float>(std::sqrt(1 - std::pow(options_.beta2, step)));
  constants.epsilon = static_cast<float>(options_.epsilon);

  const auto master =
      piece.master.scalar_type() == at::kFloat ? piece.master : piece.master.to(at::kFloat);
  const auto gradient = piece.gradient.to(at::kFloat);
  adamw_step(constants, master.data_ptr<float>(), gradient.const_data_ptr<float>(),
             states[0].data_ptr<float>(), states[1].data_ptr<float>(), piece.numel());
  if (!master.is_same(piece.master)) piece.master.copy_(master);
}

}  // namespace fullshard
