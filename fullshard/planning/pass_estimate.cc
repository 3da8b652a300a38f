// SPDX-License-Identifier: Apache-2.0
#include "fullshard/planning/pass_estimate.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "fullshard/comm/world/fake_world.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/new_values.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/generation/batch_context.h"
#include "fullshard/generation/cache_size.h"
#include "fullshard/generation/cached_language_model.h"
#include "fullshard/generation/whole_weights.h"
#include "fullshard/planning/memory_meter.h"
#include "fullshard/planning/planned_run.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::planning {
namespace {

// The sharding of weights does not matter here: each unit finds its weights unsharded.
ShardOptions whole_and_frozen(const PassTerms& terms) {
  ShardOptions options;
  options.sharding.strategy = Strategy::no_shard;
  options.param_dtype = options.master_dtype = terms.dtype;
  options.advises_on_units = false;
  options.sync_module_states = false;
  options.watch_non_finite = false;
  return options;
}

// The peak of `passes`.
int64_t bytes_beside_weights(const std::shared_ptr<LanguageModel>& model, const PassTerms& terms,
                             const std::function<void()>& passes) {
  if (!terms.device.is_cpu()) tensor::pretend_gpus();
  const tensor::PretenceScope pretence;
  const at::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
  model->eval();
  const World world = planned_world({.ranks = 1, .device = terms.device});
  ShardedModel sharded(model, world, whole_and_frozen(terms));
  engine::replace_values(engine::EngineAccess::of(sharded), "plan", [] {});
  generation::WholeWeights weights(sharded);
  const auto meter = std::make_shared<MemoryMeter>(world.device());
  {
    const tensor::WatchScope watched(meter);
    passes();
  }
  weights.close();
  const int64_t of_libraries = terms.device.is_cpu() ? 0 : kLibraryWorkspaces;
  return meter->estimate().on(tiers::Tier::device).peak_bytes + of_libraries;
}

int64_t cache_bytes(const LanguageModel& model, const PassTerms& terms,
                    const GenerationBatch& batch) {
  const auto size = generation::cache_size(model);
  int64_t tokens = (model.is_encoder_decoder() ? 1 : batch.prompt_tokens) + batch.new_tokens;
  if (model.max_positions() > 0) tokens = std::min(tokens, model.max_positions());
  const int64_t numel =
      batch.num_prompts * batch.rows_per_prompt *
      (tokens * size.numel_per_token + batch.prompt_tokens * size.numel_per_source_token);
  const auto own = model.parameters().front().scalar_type();
  return numel * static_cast<int64_t>(c10::elementSize(terms.dtype.value_or(own)));
}

// Each prompt is read, then continues in as many rows as are requested.
void read_and_step(CachedLanguageModel& model, const GenerationBatch& batch) {
  const std::vector<int64_t> prompt(static_cast<size_t>(batch.prompt_tokens), 0);
  const std::vector<std::vector<int64_t>> prompts(static_cast<size_t>(batch.num_prompts), prompt);
  generation::host_scores(model.begin(prompts, batch.new_tokens));
  if (batch.new_tokens < 2) return;
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < batch.num_prompts * batch.rows_per_prompt; ++row) {
    rows.push_back(row / batch.rows_per_prompt);
  }
  if (batch.rows_per_prompt > 1) model.select_rows(rows);
  generation::host_scores(model.next(std::vector<int64_t>(rows.size(), 0)));
}

}  // namespace

PassBytes generation_bytes(const std::shared_ptr<LanguageModel>& model, const PassTerms& terms,
                           const GenerationBatch& batch) {
  PassBytes bytes{.cache = cache_bytes(*model, terms, batch)};
  // What a step takes in addition to the cache does not depend on the size of the cache.
  GenerationBatch short_batch = batch;
  short_batch.new_tokens = std::min<int64_t>(batch.new_tokens, 2);
  int64_t short_cache = 0;
  const int64_t peak = bytes_beside_weights(model, terms, [&] {
    CachedLanguageModel cached(*model,
                               {.device = terms.device, .prefill_tokens = batch.prefill_tokens});
    read_and_step(cached, short_batch);
    short_cache = cached.cache_bytes();
  });
  bytes.activations = std::max<int64_t>(peak - short_cache, 0);
  return bytes;
}

int64_t evaluation_bytes(const std::shared_ptr<LanguageModel>& model, const PassTerms& terms,
                         int64_t micro_batch, int64_t sequence_length, int64_t target_length) {
  const EstimateOptions options{
      .device = terms.device, .sequence_length = sequence_length, .target_length = target_length};
  return bytes_beside_weights(
      model, terms, [&] { model->forward(planned_inputs(*model, micro_batch, options)); });
}

}  // namespace fullshard::planning
