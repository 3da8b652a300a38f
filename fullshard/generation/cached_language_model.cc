// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/cached_language_model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/generation/host_key_value_cache.h"

namespace fullshard {
namespace {

using generation::PassKind;
using Rows = std::vector<std::vector<int64_t>>;

int64_t longest_of(const Rows& rows) {
  size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  return static_cast<int64_t>(longest);
}

std::vector<int64_t> lengths_of_rows(const Rows& rows) {
  std::vector<int64_t> lengths;
  for (const auto& row : rows) lengths.push_back(static_cast<int64_t>(row.size()));
  return lengths;
}

// Behind their ends rows hold token 0, which nothing that counts looks at.
at::Tensor padded_behind(const Rows& rows) {
  auto tokens = at::zeros({static_cast<int64_t>(rows.size()), longest_of(rows)},
                          at::TensorOptions().dtype(at::kLong));
  for (size_t row = 0; row < rows.size(); ++row) {
    std::copy(rows[row].begin(), rows[row].end(),
              tokens.mutable_data_ptr<int64_t>() + static_cast<int64_t>(row) * tokens.size(1));
  }
  return tokens;
}

// Which rows end inside [first, first + count), and where their last tokens lie in the chunk.
struct ChunkEnds {
  std::vector<int64_t> rows;
  std::vector<int64_t> places;
};

ChunkEnds ends_in(const Rows& prompts, int64_t first, int64_t count) {
  ChunkEnds ends;
  for (size_t row = 0; row < prompts.size(); ++row) {
    const int64_t last = static_cast<int64_t>(prompts[row].size()) - 1 - first;
    if (last < 0 || last >= count) continue;
    ends.rows.push_back(static_cast<int64_t>(row));
    ends.places.push_back(static_cast<int64_t>(row) * count + last);
  }
  return ends;
}

at::Tensor indices(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong)).to(device);
}

// Of transformers' configuration: decoder_start_token_id, else the padding token.
int64_t start_token_of(const LanguageModel& model) {
  const auto config = nlohmann::json::parse(model.config_json());
  for (const char* key : {"decoder_start_token_id", "pad_token_id"}) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_number_integer()) return found->get<int64_t>();
  }
  return 0;
}

}  // namespace

CachedLanguageModel::CachedLanguageModel(LanguageModel& model, const CachedModelOptions& options)
    : model_(model), options_(options) {
  if (!model.generates()) {
    fail_as(ErrorKind::input, "generate: {} makes no text; GPT-2, Llama, Mistral, Qwen2 and T5 do",
            model.architecture());
  }
  check(!model.is_training(),
        "generate: the model is in training mode; call eval(), or open an EvaluationScope");
  if (model.is_encoder_decoder())
    start_token_ = options.start_token.value_or(start_token_of(model));
}

std::vector<int64_t> CachedLanguageModel::context_of(const std::vector<int64_t>& prompt) const {
  if (model_.is_encoder_decoder()) return {start_token_};
  return prompt;
}

at::Tensor CachedLanguageModel::logits_of(ModelInputs inputs, models::CachedPass& pass) {
  const at::NoGradGuard no_grad;
  inputs.cached = &pass;
  if (options_.vote != nullptr) {
    const bool encodes = model_.is_encoder_decoder() && inputs.input_ids.defined();
    const auto kind = options_.vote->agree(encodes ? PassKind::encode : PassKind::decode);
    if (kind == PassKind::encode && !encodes) serve_encoder(inputs, pass);
  }
  return model_.forward(std::move(inputs)).logits;
}

// Another rank reads a source in this pass: this one goes through the encoder too.
void CachedLanguageModel::serve_encoder(ModelInputs& inputs, models::CachedPass& pass) const {
  if (!model_.is_encoder_decoder()) return;
  inputs.input_ids = at::zeros({1, 1}, inputs.decoder_input_ids.options());
  pass.drops_source = true;
}

void CachedLanguageModel::serve_others() {
  if (options_.vote == nullptr) return;
  const at::NoGradGuard no_grad;
  const auto token = at::zeros({1, 1}, at::TensorOptions().dtype(at::kLong)).to(options_.device);
  for (auto kind = PassKind::none; (kind = options_.vote->agree(PassKind::none)) != PassKind::none;
       ++num_served_) {
    models::KeyValueCache cache(1, 1);
    models::CachedPass pass(cache);
    ModelInputs inputs{.input_ids = token, .cached = &pass};
    if (model_.is_encoder_decoder()) {
      // Its decoder needs a source; where others have theirs, nothing of one is gathered.
      inputs.decoder_input_ids = token;
      pass.skips_encoder = kind == PassKind::decode;
    }
    model_.forward(std::move(inputs));
  }
}

at::Tensor CachedLanguageModel::begin(const std::vector<std::vector<int64_t>>& prompts,
                                      int64_t max_new_tokens) {
  const bool reads_apart = model_.is_encoder_decoder();
  const int64_t own = reads_apart ? 1 : longest_of(prompts);
  prepare_cache(static_cast<int64_t>(prompts.size()), own + max_new_tokens);
  if (reads_apart) cache_->set_source_capacity(longest_of(prompts));
  if (!options_.device.is_cpu()) return read_rows(prompts);
  // Products of other sizes may round otherwise: so that a prompt gives the same bits in every
  // batch it is read alone, which costs a CPU little and spares it the padding.
  std::vector<at::Tensor> logits;
  for (size_t row = 0; row < prompts.size(); ++row) {
    cache_->show_rows(static_cast<int64_t>(row), 1);
    logits.push_back(read_rows({prompts[row]}));
  }
  cache_->show_all_rows();
  return at::cat(logits);
}

// A graph knows where the cache lies: the next batch of the same shape takes both over.
void CachedLanguageModel::prepare_cache(int64_t num_rows, int64_t capacity) {
  const bool is_as_before =
      graph_ != nullptr && cache_->num_rows() == num_rows && cache_->capacity() == capacity;
  if (is_as_before) return cache_->forget();
  may_repeat_ = false;
  graph_.reset();
  cache_.reset();  // before there is a second one
  cache_ = new_cache(num_rows, capacity);
}

std::unique_ptr<models::KeyValueCache> CachedLanguageModel::new_cache(int64_t num_rows,
                                                                      int64_t capacity) const {
  if (!options_.keeps_cache_on_host) {
    return std::make_unique<models::KeyValueCache>(num_rows, capacity);
  }
  return std::make_unique<generation::HostKeyValueCache>(num_rows, capacity, options_.device);
}

at::Tensor CachedLanguageModel::read_rows(const Rows& prompts) {
  return model_.is_encoder_decoder() ? read_sources(prompts) : read_prompts(prompts);
}

at::Tensor CachedLanguageModel::read_prompts(const Rows& prompts) {
  const auto tokens = padded_behind(prompts);
  at::Tensor logits;
  for (int64_t first = 0; first < tokens.size(1); first += options_.prefill_tokens) {
    if (options_.on_prompt_pass) options_.on_prompt_pass();
    const int64_t count = std::min(options_.prefill_tokens, tokens.size(1) - first);
    const ChunkEnds ends = ends_in(prompts, first, count);
    models::CachedPass pass(*cache_);
    pass.wanted = indices(ends.places, options_.device);
    const auto chunk = tokens.narrow(1, first, count).to(options_.device).contiguous();
    const auto found = logits_of({.input_ids = chunk}, pass);
    if (!logits.defined()) logits = at::empty({tokens.size(0), found.size(1)}, found.options());
    if (!ends.rows.empty()) logits.index_copy_(0, indices(ends.rows, options_.device), found);
  }
  cache_->set_lengths(lengths_of_rows(prompts));
  return logits;
}

at::Tensor CachedLanguageModel::read_sources(const Rows& sources) {
  if (options_.on_prompt_pass) options_.on_prompt_pass();
  const auto tokens = padded_behind(sources).to(options_.device);
  const auto places = at::arange(tokens.size(1), tokens.options()).unsqueeze(0);
  const auto ends = indices(lengths_of_rows(sources), options_.device).unsqueeze(1);
  models::CachedPass pass(*cache_);
  return logits_of(
      {.input_ids = tokens,
       .attention_mask = places.lt(ends).to(at::kLong),
       .decoder_input_ids = at::full({tokens.size(0), 1}, start_token_, tokens.options())},
      pass);
}

at::Tensor CachedLanguageModel::step(const at::Tensor& tokens, models::CachedPass& pass) {
  if (model_.is_encoder_decoder()) {
    return logits_of({.input_ids = {}, .decoder_input_ids = tokens}, pass);
  }
  return logits_of({.input_ids = tokens}, pass);
}

at::Tensor CachedLanguageModel::next(const std::vector<int64_t>& tokens) {
  if (may_repeat_) return next_by_graph(tokens);
  models::CachedPass pass(*cache_);
  const auto logits = step(indices(tokens, options_.device).unsqueeze(1), pass);
  // One step has shown which kernels the model takes, and made what they keep.
  may_repeat_ = options_.weights_stay && !options_.keeps_cache_on_host &&
                options_.vote == nullptr && pass.layer > 0 && pass.num_on_device == pass.layer;
  return logits;
}

at::Tensor CachedLanguageModel::next_by_graph(const std::vector<int64_t>& tokens) {
  if (graph_ == nullptr && !capture_step()) return next(tokens);
  const auto lengths = cache_->lengths();
  cache_->next_places(1, options_.device, graph_->positions());  // whether there is room
  cache_->advance(1);
  graph_->load(tokens, lengths);
  return graph_->replay();
}

bool CachedLanguageModel::capture_step() {
  const auto lengths = cache_->lengths();
  auto graph = std::make_unique<generation::StepGraph>(options_.device, cache_->num_rows());
  try {
    graph->capture([&] {
      models::CachedPass pass(*cache_);
      pass.positions = graph->positions();
      return step(graph->tokens(), pass);
    });
    graph_ = std::move(graph);
  } catch (const std::exception& error) {
    spdlog::warn("generate: steps are issued kernel by kernel, since a graph of them failed: {}",
                 error.what());
    may_repeat_ = options_.weights_stay = false;
  }
  cache_->set_lengths(lengths);  // nothing ran
  return graph_ != nullptr;
}

void CachedLanguageModel::select_rows(const std::vector<int64_t>& rows) {
  // As many rows stay in the memory that the graph knows.
  if (static_cast<int64_t>(rows.size()) != cache_->num_rows()) {
    may_repeat_ = false;
    graph_.reset();
  }
  cache_->select_rows(rows);
}

}  // namespace fullshard
