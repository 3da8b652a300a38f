// AdamW (Loshchilov and Hutter 2019), in torch.optim.AdamW's order of operations.
#pragma once

#include "fullshard/optim/optimizer.h"

namespace fullshard {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

class AdamW : public Optimizer {
 public:
  AdamW(ShardedModel model, const AdamWOptions& options);

  void set_lr(double lr) { options_.lr = lr; }
  double lr() const { return options_.lr; }

 private:
  void update(const PieceView& piece, const std::vector<at::Tensor>& states, float clip) override;

  AdamWOptions options_;
};

}  // namespace fullshard
