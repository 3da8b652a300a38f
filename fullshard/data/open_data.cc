// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/open_data.h"

#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/data/causal_data.h"
#include "fullshard/data/data_file_kind.h"
#include "fullshard/data/masked_data.h"
#include "fullshard/data/text_cache.h"
#include "fullshard/data/translation_data.h"

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

// How many tokens of text are worth making; 0: all.
int64_t enough_tokens(const DataOptions& options) {
  if (options.max_samples == 0) return 0;
  return options.task == Task::masked_lm ? options.max_samples * (options.sequence_length - 2)
                                         : options.max_samples * options.sequence_length + 1;
}

data::TokenStream open_stream(const DataOptions& options, const Tokenizer* tokenizer) {
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
                                  .vocabulary = options.vocabulary,
                                  .enough_tokens = enough_tokens(options),
                                  .num_threads = options.num_threads};
  parts.push_back(data::tokenised_text(how, used, options.cache_folder));
  return data::TokenStream(std::move(parts), options.vocabulary);
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

}  // namespace

std::unique_ptr<Dataset> open_data(const DataOptions& options, const Tokenizer* tokenizer) {
  if (options.sequence_length < 1 || options.max_samples < 0 || options.target_length < 0) {
    fail_as(ErrorKind::usage,
            "data: sequence length {}, target length {}, at most {} samples; expected positive "
            "numbers",
            options.sequence_length, options.target_length, options.max_samples);
  }
  switch (options.task) {
    case Task::causal_lm:
      return std::make_unique<data::CausalData>(open_stream(options, tokenizer),
                                                options.sequence_length, options.max_samples);
    case Task::masked_lm: {
      const Tokenizer& used = required(tokenizer, options.paths, "masked-lm");
      const data::MaskedData::Options how{.sequence_length = options.sequence_length,
                                          .max_samples = options.max_samples,
                                          .mask_probability = options.mask_probability,
                                          .vocabulary = options.vocabulary};
      return std::make_unique<data::MaskedData>(open_stream(options, tokenizer), used, how);
    }
    case Task::translation:
      return open_pairs(options, tokenizer);
  }
  fail("data: no such task");
}

}  // namespace fullshard
