// SPDX-License-Identifier: Apache-2.0
// A model whose steps are timed, until their scores are available.
#pragma once

#include <cstdint>

#include "fullshard/generation/token_model.h"

namespace fullshard::worker {

class MeasuredSteps : public TokenModel {
 public:
  explicit MeasuredSteps(TokenModel& model) : model_(model) {}

  int64_t vocabulary() const override { return model_.vocabulary(); }
  int64_t max_positions() const override { return model_.max_positions(); }
  std::vector<int64_t> context_of(const std::vector<int64_t>& prompt) const override {
    return model_.context_of(prompt);
  }
  at::Tensor begin(const std::vector<std::vector<int64_t>>& prompts,
                   int64_t max_new_tokens) override {
    return model_.begin(prompts, max_new_tokens);
  }
  at::Tensor next(const std::vector<int64_t>& tokens) override;
  void select_rows(const std::vector<int64_t>& rows) override { model_.select_rows(rows); }

  int64_t num_steps() const { return num_steps_; }
  double seconds_per_step() const {
    return num_steps_ == 0 ? 0 : seconds_ / static_cast<double>(num_steps_);
  }

 private:
  TokenModel& model_;
  int64_t num_steps_ = 0;
  double seconds_ = 0;
};

}  // namespace fullshard::worker
