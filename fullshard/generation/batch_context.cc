// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/batch_context.h"

#include <algorithm>

namespace fullshard::generation {

int64_t BatchContext::max_new_tokens(size_t prompt) const {
  const int64_t most = model.max_positions();
  if (most == 0) return options.max_new_tokens;
  const auto length = static_cast<int64_t>(prompts[prompt].tokens.size());
  return std::min(options.max_new_tokens, most - length);
}

at::Tensor BatchContext::begin() const {
  std::vector<std::vector<int64_t>> rows;
  int64_t most = 0;
  for (size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    rows.push_back(prompts[prompt].tokens);
    most = std::max(most, max_new_tokens(prompt));
  }
  if (callbacks.on_step) callbacks.on_step();
  return model.begin(rows, most);
}

at::Tensor BatchContext::next(const std::vector<int64_t>& tokens) const {
  if (callbacks.on_step) callbacks.on_step();
  return model.next(tokens);
}

bool BatchContext::is_eos(int64_t token) const {
  return std::ranges::find(options.eos_tokens, token) != options.eos_tokens.end();
}

at::Tensor host_scores(const at::Tensor& logits) {
  return logits.to(at::TensorOptions().device(at::kCPU).dtype(at::kFloat)).contiguous();
}

std::span<float> row_of(const at::Tensor& scores, size_t row) {
  const auto width = static_cast<size_t>(scores.size(1));
  return {scores.mutable_data_ptr<float>() + row * width, width};
}

}  // namespace fullshard::generation
