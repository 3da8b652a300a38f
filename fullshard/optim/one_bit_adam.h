// SPDX-License-Identifier: Apache-2.0
// OneBitAdam (Tang and others 2021), as DeepSpeed does it: Adam at first; from some step on the
// variance is frozen and ranks exchange their momenta with one bit per element instead of their
// gradients. Only where every rank holds the whole model: NO_SHARD, ZeRO stage 0, or one rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fullshard/optim/one_bit_exchange.h"
#include "fullshard/optim/optimizer.h"

namespace fullshard {

// There is no bias correction, and weight decay is AdamW's: both as in DeepSpeed, whose argument
// bias_correction its step does not look at.
struct OneBitAdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  int64_t freeze_step = 100000;  // the last step of plain Adam; 0 and 1 count as 2
  std::vector<ParameterRule> rules = {};
  at::ScalarType state_dtype = at::kFloat;
  uint64_t rounding_seed = 0;
};

// The first step changes nothing: DeepSpeed spends it on its buffers and drops the gradient, and
// trajectories are to agree. After the freeze backward leaves every rank its own gradient (see
// ShardedModel::set_gradient_reduction), so that clipping is by each rank's own norm.
class OneBitAdam : public Optimizer {
 public:
  OneBitAdam(ShardedModel model, const OneBitAdamOptions& options);
  // Backward reduces again, for whatever optimizer comes next.
  ~OneBitAdam() override;

  // The next step is a compressed one. With one rank nothing is sent, and nothing is rounded.
  bool is_frozen() const;

  // Optimizer's, and the next backward reduces or not as that step needs it. Without it the first
  // step after a restore would find the mean of the gradients: sound, but not the bits of a run
  // that was never interrupted.
  void restore_num_steps(int64_t num_steps) override;

  // What a rank does not share with the others: "worker_error" and "server_error", 1-D; none with
  // one rank. A checkpoint that leaves them out lets them begin at zero, as DeepSpeed's does.
  struct RankState {
    std::string name;
    at::Tensor values;
  };
  std::vector<RankState> rank_states() const;

 private:
  void before_updates() override;
  void update(const PieceUpdate& update) override;
  void update_on_device(const optim::DevicePass& pass) override;
  optim::AdamWStep variance_step(double factor, double lr, double weight_decay) const;
  optim::LambStep frozen_step(double lr, double weight_decay) const;
  void take_momenta(const std::vector<optim::OneBitExchange::Values>& values, at::Device device);

  OneBitAdamOptions options_;
  int64_t last_warm_up_;                             // step
  std::unique_ptr<optim::OneBitExchange> exchange_;  // absent with one rank
  bool skips_step_ = false;                          // some rank's gradients are not finite
};

}  // namespace fullshard
