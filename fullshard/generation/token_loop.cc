// SPDX-License-Identifier: Apache-2.0
// A batch of sequences token by token: the likeliest one, or one drawn at random.
#include <ATen/ops/empty.h>
#include <ATen/ops/max.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>

#include "fullshard/data/random.h"
#include "fullshard/generation/batch_context.h"
#include "fullshard/generation/logits_rules.h"
#include "fullshard/generation/sampling.h"
#include "fullshard/generation/text_stream.h"

namespace fullshard::generation {
namespace {

struct RunningSequence {
  GeneratedSequence result;
  std::vector<int64_t> context;  // what the rules see
  int64_t max_new_tokens = 0;
  data::CounterRandom random;
  std::optional<TextStream> stream;
  bool is_done = false;
};

std::vector<RunningSequence> start_sequences(const BatchContext& batch) {
  std::vector<RunningSequence> running;
  for (size_t i = 0; i < batch.prompts.size(); ++i) {
    const GeneratePrompt& prompt = batch.prompts[i];
    for (int64_t number = 0; number < batch.options.num_return_sequences; ++number) {
      running.push_back(
          {.result = {.prompt = prompt.number, .number = number},
           .context = batch.model.context_of(prompt.tokens),
           .max_new_tokens = batch.max_new_tokens(i),
           .random = data::CounterRandom(batch.options.seed, static_cast<uint64_t>(prompt.number),
                                         static_cast<uint64_t>(number)),
           .stream = {}});
      if (batch.tokenizer != nullptr) {
        running.back().stream.emplace(*batch.tokenizer, batch.options.stop);
      }
    }
  }
  return running;
}

int64_t choose_token(std::span<float> scores, RunningSequence& sequence,
                     const GenerateOptions& options) {
  const auto num_new = static_cast<int64_t>(sequence.result.tokens.size());
  if (!have_probabilities(scores)) throw NonFiniteLogits(sequence.result.prompt, num_new);
  const double all = options.wants_logprobs ? log_sum_exp(scores) : 0;
  std::vector<float> own;
  if (options.wants_logprobs) own.assign(scores.begin(), scores.end());
  apply_rules(scores, sequence.context, num_new, options);
  const int64_t token = options.do_sample
                            ? drawn_token(candidates_of(scores, options), sequence.random.uniform())
                            : likeliest_token(scores);
  if (options.wants_logprobs) {
    sequence.result.logprobs.push_back(own[static_cast<size_t>(token)] - all);
  }
  return token;
}

// Nobody looks at more of the scores than the likeliest token: that is found where they are.
bool chooses_on_device(const at::Tensor& logits, const GenerateOptions& options) {
  return !logits.is_cpu() && !options.do_sample && !options.wants_logprobs &&
         options.repetition_penalty == 1 && options.no_repeat_ngram_size == 0;
}

// The tokens that end a sequence, as columns of these logits and beside them; undefined: none.
at::Tensor end_columns(const at::Tensor& logits, const GenerateOptions& options) {
  std::vector<int64_t> ends;
  for (const int64_t token : options.eos_tokens) {
    if (token >= 0 && token < logits.size(1)) ends.push_back(token);
  }
  if (ends.empty()) return {};
  return at::tensor(ends, at::TensorOptions().dtype(at::kLong)).to(logits.device());
}

// Tokens and their scores lie side by side, so that one copy brings both.
std::vector<int64_t> likeliest_on_device(const at::Tensor& logits,
                                         const std::vector<RunningSequence*>& rows) {
  const auto found = at::empty({2, logits.size(0)}, logits.options().dtype(at::kLong));
  const auto scores_in = [&logits](const at::Tensor& both) {
    return both[1].view(logits.scalar_type()).narrow(0, 0, logits.size(0));
  };
  auto tokens = found[0], highest = scores_in(found);
  at::max_out(highest, tokens, logits, 1);
  const auto on_host = found.cpu();
  const auto scores = scores_in(on_host).to(at::kFloat);
  for (size_t row = 0; row < rows.size(); ++row) {
    if (std::isfinite(scores.const_data_ptr<float>()[row])) continue;
    const GeneratedSequence& sequence = rows[row]->result;
    throw NonFiniteLogits(sequence.prompt, static_cast<int64_t>(sequence.tokens.size()));
  }
  const auto* first = on_host.const_data_ptr<int64_t>();
  return {first, first + logits.size(0)};
}

// One token for every row; all of them have as many new ones. `ends` are end_columns().
std::vector<int64_t> choose_tokens(const at::Tensor& logits, const at::Tensor& ends,
                                   const std::vector<RunningSequence*>& rows,
                                   const GenerateOptions& options) {
  if (chooses_on_device(logits, options)) {
    const auto num_new = static_cast<int64_t>(rows.front()->result.tokens.size());
    if (num_new >= options.min_new_tokens || !ends.defined()) {
      return likeliest_on_device(logits, rows);
    }
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    return likeliest_on_device(logits.index_fill(1, ends, kNever), rows);
  }
  const auto scores = host_scores(logits);
  std::vector<int64_t> tokens;
  for (size_t row = 0; row < rows.size(); ++row) {
    tokens.push_back(choose_token(row_of(scores, row), *rows[row], options));
  }
  return tokens;
}

void end_sequence(RunningSequence& sequence, FinishReason reason) {
  sequence.is_done = true;
  sequence.result.finish = reason;
}

void take_token(const BatchContext& batch, RunningSequence& sequence, int64_t token) {
  sequence.result.tokens.push_back(token);
  sequence.context.push_back(token);
  const bool is_eos = batch.is_eos(token);
  // What ends a sequence is no text of it.
  std::string piece;
  if (sequence.stream && !is_eos) piece = sequence.stream->push(token);
  if (is_eos) {
    end_sequence(sequence, FinishReason::eos);
  } else if (sequence.stream && sequence.stream->has_stopped()) {
    end_sequence(sequence, FinishReason::stop);
  } else if (static_cast<int64_t>(sequence.result.tokens.size()) >= sequence.max_new_tokens) {
    end_sequence(sequence, FinishReason::length);
  }
  if (sequence.is_done && sequence.stream) {
    piece += sequence.stream->finish();
    // The last token may have been held back in the middle of a stop text.
    if (sequence.stream->has_stopped() && !is_eos) sequence.result.finish = FinishReason::stop;
    sequence.result.text = sequence.stream->text();
  }
  if (batch.callbacks.on_token) {
    batch.callbacks.on_token({.prompt = sequence.result.prompt,
                              .sequence = sequence.result.number,
                              .token = token,
                              .text = piece,
                              .is_last = sequence.is_done});
  }
}

// The rows that go on, in an order that moves few of them: the last ones take free places.
std::vector<int64_t> rows_that_go_on(const std::vector<RunningSequence*>& rows) {
  std::vector<int64_t> kept(rows.size());
  std::iota(kept.begin(), kept.end(), 0);
  for (size_t row = 0; row < kept.size();) {
    if (!rows[static_cast<size_t>(kept[row])]->is_done) {
      ++row;
    } else {
      kept[row] = kept.back();
      kept.pop_back();
    }
  }
  return kept;
}

}  // namespace

std::vector<GeneratedSequence> generate_tokens(const BatchContext& batch) {
  std::vector<RunningSequence> sequences = start_sequences(batch);
  std::vector<RunningSequence*> rows;
  for (RunningSequence& sequence : sequences) rows.push_back(&sequence);
  at::Tensor logits = batch.begin();
  const int64_t num_each = batch.options.num_return_sequences;
  if (num_each > 1) {  // prompts are read once
    std::vector<int64_t> prompt_of(rows.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      prompt_of[row] = static_cast<int64_t>(row) / num_each;
    }
    batch.model.select_rows(prompt_of);
    logits = logits.repeat_interleave(num_each, 0);
  }
  const auto ends = end_columns(logits, batch.options);
  while (true) {
    std::vector<int64_t> tokens = choose_tokens(logits, ends, rows, batch.options);
    for (size_t row = 0; row < rows.size(); ++row) take_token(batch, *rows[row], tokens[row]);
    const std::vector<int64_t> kept = rows_that_go_on(rows);
    if (kept.empty()) break;
    if (kept.size() < rows.size()) {
      batch.model.select_rows(kept);
      std::vector<RunningSequence*> left;
      std::vector<int64_t> tokens_left;
      for (const int64_t row : kept) {
        left.push_back(rows[static_cast<size_t>(row)]);
        tokens_left.push_back(tokens[static_cast<size_t>(row)]);
      }
      rows = std::move(left);
      tokens = std::move(tokens_left);
    }
    logits = batch.next(tokens);
  }
  std::vector<GeneratedSequence> results;
  for (RunningSequence& sequence : sequences) results.push_back(std::move(sequence.result));
  return results;
}

}  // namespace fullshard::generation
