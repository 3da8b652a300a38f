// SPDX-License-Identifier: Apache-2.0
// How text is generated. Names and meanings are those of transformers' GenerationConfig.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard {

// When beam search ends before max_new_tokens, once as many sequences have ended as there are
// beams.
enum class EarlyStopping {
  heuristic,  // where no running beam would be better if it ended now (early_stopping false)
  at_once,    // early_stopping true
  never,      // where no running beam can become better ("never")
};

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  int64_t min_new_tokens = 0;  // no end-of-sequence token before them

  bool do_sample = false;  // else the likeliest token
  double temperature = 1;
  int64_t top_k = 50;  // so many likeliest tokens; 0: all
  double top_p = 1;    // the likeliest tokens that make up this probability
  double min_p = 0;    // tokens that have this share of the likeliest one's probability
  double repetition_penalty = 1;
  int64_t no_repeat_ngram_size = 0;  // no sequence of so many tokens twice; 0: may be

  int64_t num_beams = 1;
  double length_penalty = 1;  // a beam's score is divided by its length to this power
  EarlyStopping early_stopping = EarlyStopping::heuristic;
  int64_t num_return_sequences = 1;

  std::vector<int64_t> eos_tokens = {};  // any of them ends a sequence
  std::vector<std::string> stop = {};  // so does one of these texts, whatever tokens it is cut into
  // Every sequence draws its own numbers, from (seed, number of the prompt, number of the
  // sequence).
  uint64_t seed = 42;
  bool wants_logprobs = false;

  int64_t batch = 8;             // prompts at a time
  int64_t prefill_tokens = 512;  // of each prompt in one pass
};

// Throws an Error (kind usage) that lists every value that makes no sense, alone or with another.
void check_generate_options(const GenerateOptions& options);
// The same of values that make no sense whatever the others are, which may still be overridden.
void check_generate_values(const GenerateOptions& options);

}  // namespace fullshard
