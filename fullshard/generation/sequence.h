// SPDX-License-Identifier: Apache-2.0
// What generate() gives for one sequence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard {

enum class FinishReason { eos, stop, length };
std::string_view finish_name(FinishReason reason);  // "eos"

struct GeneratedSequence {
  int64_t prompt = 0;                // its number, as GeneratePrompt has it
  int64_t number = 0;                // below num_return_sequences
  std::vector<int64_t> tokens = {};  // new ones only, with the one that ended it
  std::string text = {};  // of the tokens, without what ended it; empty without a tokenizer
  FinishReason finish = FinishReason::length;
  // Of each token by the model's own distribution, before temperature and rules. When asked for.
  std::vector<double> logprobs = {};
  double score = 0;  // beam search: sum of log probabilities over length^length_penalty
};

}  // namespace fullshard
