// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/rank_model.h"

#include <chrono>
#include <cmath>

#include "fullshard/base/error.h"
#include "fullshard/base/hub_cache.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/data/documents/class_rows.h"
#include "fullshard/data/weighted_paths.h"
#include "fullshard/optim/precision.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/classification_source.h"
#include "fullshard/train/determinism.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/new_head.h"
#include "fullshard/train/run_adapter.h"
#include "fullshard/train/unused_head.h"

namespace fullshard::worker {

namespace {

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

// From scratch, the weights in the folder are ignored.
ModelSource source_of(const RunOptions& options) {
  const bool is_preset_meant = !options.pretrained || options.from_scratch;
  ModelSource source =
      is_preset_meant ? find_model(options.model) : find_pretrained_model(options.model);
  source.has_weights = source.has_weights && !options.from_scratch;
  return source;
}

// The classes that all data of the run name.
std::vector<std::string> classes_of(const RunOptions& options) {
  std::vector<std::string> paths = options.data;
  const auto weighted = data::weighted_paths(paths);
  if (!weighted.empty()) paths.clear();
  for (const auto& [path, weight] : weighted) paths.push_back(path);
  paths.insert(paths.end(), options.eval_data.begin(), options.eval_data.end());
  return data::find_classes(paths, options.text_field);
}

// A preset's configuration names the end mark of its original's tokenizer; the model learns that
// of the run's.
void take_end_mark(ModelSource& preset, const std::string& tokenizer) {
  const auto eos = load_tokenizer(base::path_or_cached_model(tokenizer))->eos();
  auto config = base::parse_json<nlohmann::ordered_json>(preset.config_json);
  if (!eos || !config.contains("eos_token_id") || config["eos_token_id"] == *eos) return;
  config["eos_token_id"] = *eos;
  preset.config_json = config.dump(2) + "\n";
}

ModelSource trained_source_of(const RunOptions& options) {
  ModelSource source = source_of(options);
  if (source.folder.empty() && !options.tokenizer.empty()) take_end_mark(source, options.tokenizer);
  if (options.task != "classification" || options.data.empty()) return source;
  return train::classification_source(std::move(source), classes_of(options), options.new_head);
}

}  // namespace

World meet_ranks(const cli::RunArguments& arguments) {
  const auto& options = arguments.options();
  return World::from_environment(
      {.local_rank = arguments.local_rank(),
       .backend = options.backend,
       .device = arguments.device(),
       .timeouts = {.init = milliseconds_of(options.init_timeout),
                    .step = milliseconds_of(options.step_timeout),
                    .checkpoint = milliseconds_of(options.checkpoint_timeout)}});
}

RankModel::RankModel(const RunOptions& options, bool is_trained)
    : source(train::with_adapter_config(
          is_trained ? trained_source_of(options) : source_of(options), options)),
      model(make_deferred_model(source, is_trained)) {
  if (is_trained || train::has_adapter(options)) {
    drawn = train::new_head(source, *model, options.new_head);
  }
  adapter = train::adapt_model(*model, options, drawn);
  if (!options.tf32.empty()) set_tf32(options.tf32 == "on");
  if (options.is_deterministic) train::choose_deterministic_kernels();
}

ShardedModel RankModel::shard(const World& world, const Plan& plan, const RunOptions& options,
                              bool fills) const {
  plan.check(world.size(), world.device().is_cpu() ? "cpu" : "cuda");
  train::set_log_level(plan);
  return shard_by(world, shard_options_of(plan), options, fills);
}

ShardedModel RankModel::shard_frozen(const World& world, const Plan& plan,
                                     const RunOptions& options,
                                     const std::function<void(ShardOptions&)>& place) const {
  plan.check(world.size(), world.device().is_cpu() ? "cpu" : "cuda");
  train::set_log_level(plan);
  ShardOptions shard_options = shard_options_of(plan);
  for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
  shard_options.master_dtype = shard_options.param_dtype;
  shard_options.watch_non_finite = false;
  if (place) place(shard_options);
  return shard_by(world, shard_options, options, /*fills=*/true);
}

ShardedModel RankModel::shard_by(const World& world, const ShardOptions& given,
                                 const RunOptions& options, bool fills) const {
  ShardOptions shard_options = given;
  shard_options.advises_on_units =
      false;  // users of this program cannot change the classes of the models
  // Every rank reads the same file or draws the same numbers: nothing has to be broadcast.
  shard_options.sync_module_states = false;
  ShardedModel sharded(model, world, shard_options);
  if (fills || adapter) fill(sharded, options);
  return sharded;
}

void RankModel::fill(ShardedModel& sharded, const RunOptions& options) const {
  if (source.has_weights) {
    load_model_weights(source.folder, *model, sharded, {.names = drawn, .seed = options.seed});
  } else {
    make_new_weights(*model, sharded, options.seed);
  }
  if (adapter) train::fill_adapters(sharded, options, drawn);
}

void RankModel::warn_of_weights() const {
  if (!source.has_weights) {
    base::say(fmt::format("warning: {}\n", source.new_weights_warning()));
  }
  for (const std::string& warning : train::unused_head_warnings(source, *model)) {
    base::say(fmt::format("warning: {}\n", warning));
  }
}

AutoInputs RankModel::auto_inputs() const { return {.hidden_size = source.hidden_size()}; }

std::optional<at::ScalarType> asked_evaluation_dtype(const RunOptions& options) {
  if (options.eval_precision.empty()) return std::nullopt;
  if (options.eval_precision == "bf16") return at::kBFloat16;
  return options.eval_precision == "fp16" ? at::kHalf : at::kFloat;
}

std::optional<at::ScalarType> evaluation_dtype(const RunOptions& options, const Plan& plan) {
  const auto asked = asked_evaluation_dtype(options);
  if (!asked || *asked == at::kFloat || *asked == precision_of(plan).compute) return std::nullopt;
  return asked;
}

}  // namespace fullshard::worker
