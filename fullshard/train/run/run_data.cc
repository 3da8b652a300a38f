// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_data.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/hub_cache.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/train/written_folder.h"

namespace fullshard::train {
namespace {

constexpr int64_t kUsualSequence = 512;

using NamedTask = std::pair<std::string_view, Task>;
constexpr std::array<NamedTask, 4> kTasks = {{{"causal-lm", Task::causal_lm},
                                              {"masked-lm", Task::masked_lm},
                                              {"translation", Task::translation},
                                              {"classification", Task::classification}}};

const NamedTask& task_named(std::string_view name) {
  return *std::ranges::find(kTasks, name, &NamedTask::first);
}

Task task_of(const std::string& name, const LanguageModel& model) {
  const auto& own = task_named([&] {
    if (!model.class_names().empty()) return "classification";
    if (model.is_encoder_decoder()) return "translation";
    return model.is_masked() ? "masked-lm" : "causal-lm";
  }());
  if (!name.empty() && name != own.first) {
    fail_as(ErrorKind::usage, "--task: is {}, but {} is for {}", name, model.architecture(),
            own.first);
  }
  return own.second;
}

std::optional<LossOn> loss_on_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return name == "all" ? LossOn::all : LossOn::completions;
}

}  // namespace

int64_t sequence_length_of(int64_t asked, const LanguageModel& model) {
  const int64_t most = model.max_positions();
  if (most > 0 && asked > most) {
    fail_as(ErrorKind::usage,
            "--sequence-length: is {}, but the model has {} positions; give at most {}, or "
            "--model a folder whose config.json has more",
            asked, most, most);
  }
  if (asked > 0) return asked;
  return most > 0 ? std::min(most, kUsualSequence) : kUsualSequence;
}

std::vector<std::string> RunData::warnings() const {
  std::vector<std::string> all;
  for (const Dataset* data : {train.get(), evaluation.get()}) {
    if (data == nullptr) continue;
    const auto own = data->warnings();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

RunData open_run_data(const RunOptions& options, const std::string& model_folder,
                      const LanguageModel& model) {
  RunData data;
  data.task = task_of(options.task, model);
  data.sequence_length = sequence_length_of(options.sequence_length, model);
  if (!options.tokenizer.empty()) {
    data.tokenizer_path = base::path_or_cached_model(options.tokenizer);
  }
  if (data.tokenizer_path.empty() && has_tokenizer(model_folder))
    data.tokenizer_path = model_folder;
  if (!data.tokenizer_path.empty()) {
    data.tokenizer = load_tokenizer(data.tokenizer_path);
    if (data.tokenizer->vocabulary() > model.vocabulary()) {
      fail_as(ErrorKind::input,
              "{}: has {} tokens, but the model's vocabulary is {}; they do not belong together",
              data.tokenizer_path, data.tokenizer->vocabulary(), model.vocabulary());
    }
  }
  // What is evaluated is, of a data set of the hub, the part that is meant for it.
  DataOptions open{.paths = options.data,
                   .split = options.only_computes ? "validation" : "train",
                   .task = data.task,
                   .sequence_length = data.sequence_length,
                   .target_length = options.target_length,
                   .text_field = options.text_field,
                   .source_language = options.source_language,
                   .target_language = options.target_language,
                   .source_prefix = options.source_prefix,
                   .max_samples = options.max_samples,
                   .mask_probability = options.mask_probability,
                   .vocabulary = model.vocabulary(),
                   .cache_folder = options.cache_folder,
                   .loss_on = loss_on_of(options.loss_on),
                   .packs = options.packing,
                   .classes = model.class_names(),
                   .chat_folder = data.tokenizer_path,
                   .order = options.order == "sequential" ? Order::sequential : Order::shuffled};
  OpenedData opened =
      open_mixed_data(open, data.tokenizer.get(), options.validation_split, options.seed);
  data.train = std::move(opened.train);
  data.evaluation = std::move(opened.held_out);
  if (!options.eval_data.empty()) {
    open.paths = options.eval_data;
    open.split = "validation";
    open.max_samples = options.max_eval_samples.value_or(options.max_samples);
    data.evaluation = open_data(open, data.tokenizer.get());
  }
  return data;
}

}  // namespace fullshard::train
