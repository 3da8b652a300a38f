// SPDX-License-Identifier: Apache-2.0
// A ready model as generate() asks it: prompts in chunks, then a token at a time over a cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>

#include "fullshard/generation/pass_vote.h"
#include "fullshard/generation/step_graph.h"
#include "fullshard/generation/token_model.h"
#include "fullshard/models/common/key_value_cache.h"
#include "fullshard/models/common/language_model.h"

namespace fullshard {

struct CachedModelOptions {
  at::Device device = at::kCPU;
  int64_t prefill_tokens = 512;  // of each prompt in one pass
  // The first token of an encoder-decoder model's target; absent: its config.json's.
  std::optional<int64_t> start_token = {};
  // Where passes are collective: asked before each of them. Outlives the model; null: they are not.
  const generation::PassVote* vote = nullptr;
  // Before each pass that reads a prompt, or a chunk of it: begin() makes many.
  std::function<void()> on_prompt_pass = {};
  // The weights lie where they lie as long as this is used, whole: on a GPU a step may then be a
  // graph (generation/step_graph.h) where the model's kernels allow it.
  bool weights_stay = false;
  // Keys and values lie in host memory, and come to the device layer by layer in every pass
  // (generation/host_key_value_cache.h).
  bool keeps_cache_on_host = false;
};

// Borrows the model, whose parameters must be there while it is used. Where they are sharded, every
// pass is collective: generation::WholeWeights makes them whole for a while, or all ranks are given
// a PassVote and call serve_others() when they are done.
class CachedLanguageModel : public TokenModel {
 public:
  // A model that does not generate (BERT) is an Error of kind input; one in training mode is one
  // too, since its dropout would be at work.
  CachedLanguageModel(LanguageModel& model, const CachedModelOptions& options = {});

  int64_t vocabulary() const override { return model_.vocabulary(); }
  int64_t max_positions() const override { return model_.max_positions(); }
  std::vector<int64_t> context_of(const std::vector<int64_t>& prompt) const override;
  at::Tensor begin(const std::vector<std::vector<int64_t>>& prompts,
                   int64_t max_new_tokens) override;
  at::Tensor next(const std::vector<int64_t>& tokens) override;
  void select_rows(const std::vector<int64_t>& rows) override;

  // Collective. Makes passes that count for nothing as long as another rank makes any.
  void serve_others();
  int64_t num_served() const { return num_served_; }

  bool uses_graph() const { return graph_ != nullptr; }
  int64_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }

 private:
  void prepare_cache(int64_t num_rows, int64_t capacity);
  std::unique_ptr<models::KeyValueCache> new_cache(int64_t num_rows, int64_t capacity) const;
  at::Tensor read_rows(const std::vector<std::vector<int64_t>>& prompts);
  at::Tensor read_prompts(const std::vector<std::vector<int64_t>>& prompts);
  at::Tensor read_sources(const std::vector<std::vector<int64_t>>& sources);
  at::Tensor logits_of(ModelInputs inputs, models::CachedPass& pass);
  at::Tensor step(const at::Tensor& tokens, models::CachedPass& pass);
  at::Tensor next_by_graph(const std::vector<int64_t>& tokens);
  bool capture_step();
  void serve_encoder(ModelInputs& inputs, models::CachedPass& pass) const;

  LanguageModel& model_;
  CachedModelOptions options_;
  int64_t start_token_ = 0;
  int64_t num_served_ = 0;
  std::unique_ptr<models::KeyValueCache> cache_;
  bool may_repeat_ = false;  // the last step could be one
  std::unique_ptr<generation::StepGraph> graph_;
};

}  // namespace fullshard
