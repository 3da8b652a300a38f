// SPDX-License-Identifier: Apache-2.0
// What generate() asks of a model. Ready models are asked through CachedLanguageModel; derive from
// this for your own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fullshard {

// One batch at a time; called by the thread that generates. Logits are [rows, vocabulary], of any
// floating dtype and device.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  virtual int64_t vocabulary() const = 0;
  // Of prompt and new tokens together; 0: no limit.
  virtual int64_t max_positions() const { return 0; }
  // The tokens before the first new one, as rules about repetition see them; the prompt itself
  // unless the model reads it apart.
  virtual std::vector<int64_t> context_of(const std::vector<int64_t>& prompt) const {
    return prompt;
  }

  // Forgets the batch before it and reads these prompts, of any lengths from 1 on. Each will be
  // given at most `max_new_tokens`. The logits of the token after each prompt.
  virtual at::Tensor begin(const std::vector<std::vector<int64_t>>& prompts,
                           int64_t max_new_tokens) = 0;
  // One more token in each row; the logits of the one after it.
  virtual at::Tensor next(const std::vector<int64_t>& tokens) = 0;
  // Row i goes on from what was row rows[i]; there may be more or fewer of them than before.
  virtual void select_rows(const std::vector<int64_t>& rows) = 0;
};

}  // namespace fullshard
