// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/open_data.h"

#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/data/causal_data.h"
#include "fullshard/data/class_data.h"
#include "fullshard/data/document_data.h"
#include "fullshard/data/joined_data.h"
#include "fullshard/data/masked_data.h"
#include "fullshard/data/split_data.h"
#include "fullshard/data/text/data_file_kind.h"
#include "fullshard/data/text/own_documents.h"
#include "fullshard/data/text/text_cache.h"
#include "fullshard/data/translation_data.h"
#include "fullshard/data/weighted_paths.h"

namespace fullshard {
namespace {

const Tokenizer& required(const Tokenizer* tokenizer, const std::vector<std::string>& files,
                          const char* why) {
  if (tokenizer == nullptr) {
    fail_as(ErrorKind::input, "{}: {} needs a tokenizer; name one, or \"bytes\"",
            data::name_of_files(files), why);
  }
  return *tokenizer;
}

// How many tokens of text are needed; 0: all.
int64_t enough_tokens(const DataOptions& options) {
  if (options.max_samples == 0) return 0;
  return options.task == Task::masked_lm ? options.max_samples * (options.sequence_length - 2)
                                         : options.max_samples * options.sequence_length + 1;
}

data::TokenStream open_stream(const DataOptions& options, const Tokenizer* tokenizer,
                              data::OwnDocuments own_documents) {
  const std::vector<std::string> files = data::list_files(options.paths, options.split);
  std::vector<data::TokenFile> parts;
  if (data::are_token_files(files)) {
    for (const std::string& file : files) parts.emplace_back(file, options.token_dtype);
    return data::TokenStream(std::move(parts), options.vocabulary);
  }
  const Tokenizer& used = required(tokenizer, files, "text");
  const auto separator = options.task == Task::masked_lm ? used.sep() : used.eos();
  const data::TokeniseOptions how{.files = files,
                                  .field = options.text_field,
                                  .separator = separator,
                                  .own_documents = own_documents,
                                  .vocabulary = options.vocabulary,
                                  .enough_tokens = enough_tokens(options),
                                  .num_threads = options.num_threads};
  parts.push_back(data::tokenised_text(how, used, options.cache_folder));
  return data::TokenStream(std::move(parts), options.vocabulary);
}

std::unique_ptr<Dataset> open_documents(const DataOptions& options, const Tokenizer* tokenizer) {
  const std::vector<std::string> files = data::list_files(options.paths, options.split);
  if (data::are_token_files(files)) {
    fail_as(ErrorKind::usage,
            "{}: {} is for documents in JSON or text; token files are one stream of tokens",
            data::name_of_files(files), options.packs ? "--packing" : "--loss-on");
  }
  const data::DocumentOptions how{
      .files = files,
      .field = options.text_field,
      .encoder = {.loss_on = options.loss_on.value_or(LossOn::completions_if_any),
                  .chat_folder = options.chat_folder,
                  .vocabulary = options.vocabulary},
      .sequence_length = options.sequence_length,
      .packs = options.packs,
      .max_samples = options.max_samples,
      .num_threads = options.num_threads};
  return std::make_unique<data::DocumentData>(how, required(tokenizer, files, "text"));
}

// Rows that are texts are parts of one stream; any other row makes all of them documents. Only
// reading all rows tells, so they are not read twice for it.
std::unique_ptr<Dataset> open_causal(const DataOptions& options, const Tokenizer* tokenizer) {
  if (options.packs || options.loss_on) return open_documents(options, tokenizer);
  try {
    return std::make_unique<data::CausalData>(
        open_stream(options, tokenizer, data::OwnDocuments::refused), options.sequence_length,
        options.max_samples);
  } catch (const data::OwnDocumentFound&) {
    return open_documents(options, tokenizer);
  }
}

std::unique_ptr<Dataset> open_pairs(const DataOptions& options, const Tokenizer* tokenizer) {
  const std::vector<std::string> files = data::list_files(options.paths, options.split);
  const int64_t target =
      options.target_length > 0 ? options.target_length : options.sequence_length;
  const data::TranslationOptions how{
      .files = files,
      .languages = {options.source_language, options.target_language},
      .source_prefix = options.source_prefix,
      .source_length = options.sequence_length,
      .target_length = target,
      .max_samples = options.max_samples,
      .vocabulary = options.vocabulary,
      .num_threads = options.num_threads};
  return std::make_unique<data::TranslationData>(how, required(tokenizer, files, "translation"));
}

std::unique_ptr<Dataset> open_classes(const DataOptions& options, const Tokenizer* tokenizer) {
  const std::vector<std::string> files = data::list_files(options.paths, options.split);
  const data::ClassDataOptions how{.files = files,
                                   .field = options.text_field,
                                   .classes = options.classes,
                                   .sequence_length = options.sequence_length,
                                   .max_samples = options.max_samples,
                                   .vocabulary = options.vocabulary,
                                   .num_threads = options.num_threads};
  return std::make_unique<data::ClassData>(how, required(tokenizer, files, "classification"));
}

}  // namespace

std::unique_ptr<Dataset> open_data(const DataOptions& options, const Tokenizer* tokenizer) {
  if (options.sequence_length < 1 || options.max_samples < 0 || options.target_length < 0) {
    fail_as(ErrorKind::usage,
            "data: sequence length {}, target length {}, at most {} samples; expected positive "
            "numbers",
            options.sequence_length, options.target_length, options.max_samples);
  }
  if (options.task != Task::causal_lm && (options.packs || options.loss_on)) {
    fail_as(ErrorKind::usage, "{}: is for causal-lm only",
            options.packs ? "--packing" : "--loss-on");
  }
  switch (options.task) {
    case Task::causal_lm:
      return open_causal(options, tokenizer);
    case Task::masked_lm: {
      const Tokenizer& used = required(tokenizer, options.paths, "masked-lm");
      const data::MaskedData::Options how{.sequence_length = options.sequence_length,
                                          .max_samples = options.max_samples,
                                          .mask_probability = options.mask_probability,
                                          .vocabulary = options.vocabulary};
      return std::make_unique<data::MaskedData>(
          open_stream(options, tokenizer, data::OwnDocuments::as_texts), used, how);
    }
    case Task::translation:
      return open_pairs(options, tokenizer);
    case Task::classification:
      return open_classes(options, tokenizer);
  }
  fail("data: unknown task");
}

OpenedData open_mixed_data(const DataOptions& options, const Tokenizer* tokenizer,
                           double held_out_share, uint64_t seed) {
  OpenedData opened;
  std::vector<std::unique_ptr<Dataset>> held_out;
  const auto open = [&](const std::vector<std::string>& paths, int64_t max_samples) {
    DataOptions one = options;
    one.paths = paths;
    one.max_samples = max_samples;
    auto data = open_data(one, tokenizer);
    if (held_out_share == 0) return data;
    data::SplitData split = data::split_data(std::move(data), held_out_share, seed);
    held_out.push_back(std::move(split.held_out));
    return std::move(split.rest);
  };
  const auto weighted = data::weighted_paths(options.paths);
  if (weighted.empty()) {
    opened.train = open(options.paths, options.max_samples);
  } else {
    const std::vector<int64_t> samples = data::samples_of(weighted, options.max_samples);
    std::vector<data::WeightedData> parts;
    for (const auto& [path, weight] : weighted) {
      parts.push_back({open({path}, samples[parts.size()]), weight});
    }
    opened.train = std::make_unique<data::MixedData>(std::move(parts), seed, options.order);
  }
  if (held_out.size() == 1) {
    opened.held_out = std::move(held_out.front());
  } else if (!held_out.empty()) {
    opened.held_out = std::make_unique<data::JoinedData>(std::move(held_out));
  }
  return opened;
}

}  // namespace fullshard
