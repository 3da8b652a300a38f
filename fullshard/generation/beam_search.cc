// SPDX-License-Identifier: Apache-2.0
// Beam search as transformers defines it: scores, what counts as finished, and when to stop.
// Prompts of a batch search by themselves; only the model's steps are shared.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fullshard/generation/batch_context.h"
#include "fullshard/generation/logits_rules.h"
#include "fullshard/generation/sampling.h"
#include "fullshard/generation/text_stream.h"

namespace fullshard::generation {
namespace {

constexpr float kNoScore = -1e9F;  // of beams that do not exist yet

struct Beam {
  std::vector<int64_t> tokens = {};  // new ones
  float score = 0;                   // sum of log probabilities
  std::vector<double> logprobs = {};
  FinishReason finish = FinishReason::length;
};

// A beam and one more token.
struct Continuation {
  float score = 0;
  size_t beam = 0;
  int64_t token = 0;
};

struct BeamHypothesis {
  float score = 0;  // by length
  Beam beam;
};

// The search of one prompt. Its running beams are rows of the model, side by side.
class PromptSearch {
 public:
  PromptSearch(const BatchContext& batch, size_t prompt)
      : batch_(batch),
        prompt_(batch.prompts[prompt].number),
        context_(batch.model.context_of(batch.prompts[prompt].tokens)),
        max_new_tokens_(batch.max_new_tokens(prompt)),
        stop_tokens_(stop_tokens_of(batch.tokenizer, batch.options.stop)),
        running_(static_cast<size_t>(batch.options.num_beams)) {
    for (size_t beam = 1; beam < running_.size(); ++beam) running_[beam].score = kNoScore;
  }

  bool is_done() const { return is_done_; }
  size_t num_rows() const { return running_.size(); }
  int64_t last_token(size_t beam) const { return running_[beam].tokens.back(); }

  // Takes the scores of its rows, from `first_row` on; gives the row that each beam goes on from.
  std::vector<int64_t> step(const at::Tensor& scores, size_t first_row);
  std::vector<GeneratedSequence> results();

 private:
  struct RowScores {
    std::span<float> ruled;    // log probabilities with the rules applied
    std::vector<float> plain;  // without, when they are asked for
  };
  RowScores log_probabilities(std::span<float> scores, const Beam& beam) const;
  std::vector<Continuation> best_continuations(const std::vector<RowScores>& rows) const;
  Beam extended(const Continuation& continuation, const std::vector<RowScores>& rows) const;
  bool has_ended(Beam& beam) const;
  bool has_stopped(const Beam& beam) const;
  void finish(const Beam& beam);
  void look_whether_done(bool all_ended);
  float by_length(float score, int64_t length) const {
    return score /
           static_cast<float>(std::pow(static_cast<double>(length), batch_.options.length_penalty));
  }
  bool is_full() const { return finished_.size() == running_.size(); }

  const BatchContext& batch_;
  int64_t prompt_;
  std::vector<int64_t> context_;
  int64_t max_new_tokens_;
  std::vector<int64_t> stop_tokens_;
  int64_t num_new_ = 0;
  std::vector<Beam> running_;
  std::vector<BeamHypothesis> finished_;  // best first, at most as many as beams
  bool is_done_ = false;
};

PromptSearch::RowScores PromptSearch::log_probabilities(std::span<float> scores,
                                                        const Beam& beam) const {
  if (!have_probabilities(scores)) throw NonFiniteLogits(prompt_, num_new_);
  const double all = log_sum_exp(scores);
  for (float& score : scores) score = static_cast<float>(static_cast<double>(score) - all);
  RowScores row{.ruled = scores, .plain = {}};
  if (batch_.options.wants_logprobs) row.plain.assign(scores.begin(), scores.end());
  std::vector<int64_t> context = context_;
  context.insert(context.end(), beam.tokens.begin(), beam.tokens.end());
  apply_rules(scores, context, num_new_, batch_.options);
  return row;
}

// So many that as many as there are beams remain when all ends of a sequence are taken away.
std::vector<Continuation> PromptSearch::best_continuations(
    const std::vector<RowScores>& rows) const {
  const size_t num_ends = batch_.options.eos_tokens.size();
  const size_t kept = std::max<size_t>(2, 1 + num_ends) * rows.size();
  const auto is_better = [](const Continuation& left, const Continuation& right) {
    if (left.score != right.score) return left.score > right.score;
    return left.beam != right.beam ? left.beam < right.beam : left.token < right.token;
  };
  std::vector<Continuation> best;  // a heap with the worst on top
  for (size_t beam = 0; beam < rows.size(); ++beam) {
    for (size_t token = 0; token < rows[beam].ruled.size(); ++token) {
      const Continuation next{rows[beam].ruled[token] + running_[beam].score, beam,
                              static_cast<int64_t>(token)};
      if (best.size() == kept) {
        if (!is_better(next, best.front())) continue;
        std::ranges::pop_heap(best, is_better);
        best.pop_back();
      }
      best.push_back(next);
      std::ranges::push_heap(best, is_better);
    }
  }
  std::ranges::sort_heap(best, is_better);
  return best;
}

Beam PromptSearch::extended(const Continuation& continuation,
                            const std::vector<RowScores>& rows) const {
  Beam beam = running_[continuation.beam];
  beam.tokens.push_back(continuation.token);
  beam.score = continuation.score;
  if (batch_.options.wants_logprobs) {
    beam.logprobs.push_back(rows[continuation.beam].plain[static_cast<size_t>(continuation.token)]);
  }
  return beam;
}

bool PromptSearch::has_stopped(const Beam& beam) const {
  if (batch_.options.stop.empty()) return false;
  if (std::ranges::find(stop_tokens_, beam.tokens.back()) != stop_tokens_.end()) return true;
  const std::string text =
      batch_.tokenizer->decode(std::vector<int32_t>(beam.tokens.begin(), beam.tokens.end()));
  return std::ranges::any_of(batch_.options.stop, [&](const std::string& stop) {
    return text.find(stop) != std::string::npos;
  });
}

bool PromptSearch::has_ended(Beam& beam) const {
  if (batch_.is_eos(beam.tokens.back())) {
    beam.finish = FinishReason::eos;
  } else if (has_stopped(beam)) {
    beam.finish = FinishReason::stop;
  } else {
    beam.finish = FinishReason::length;
    return static_cast<int64_t>(beam.tokens.size()) >= max_new_tokens_;
  }
  return true;
}

void PromptSearch::finish(const Beam& beam) {
  const float score = by_length(beam.score, static_cast<int64_t>(beam.tokens.size()));
  const auto place =
      std::ranges::upper_bound(finished_, score, std::greater<>(), &BeamHypothesis::score);
  finished_.insert(place, {score, beam});
  if (finished_.size() > running_.size()) finished_.pop_back();
}

void PromptSearch::look_whether_done(bool all_ended) {
  const GenerateOptions& options = batch_.options;
  const bool looks_to_the_end =
      options.early_stopping == EarlyStopping::never && options.length_penalty > 0;
  const float best =
      by_length(running_.front().score, looks_to_the_end ? max_new_tokens_ : num_new_);
  const bool can_improve = !is_full() || best > finished_.back().score;
  const bool is_enough = is_full() && options.early_stopping == EarlyStopping::at_once;
  is_done_ = all_ended || !can_improve || is_enough;
}

std::vector<int64_t> PromptSearch::step(const at::Tensor& scores, size_t first_row) {
  std::vector<RowScores> rows;
  for (size_t beam = 0; beam < running_.size(); ++beam) {
    rows.push_back(log_probabilities(row_of(scores, first_row + beam), running_[beam]));
  }
  ++num_new_;
  std::vector<Beam> going_on, ended;
  std::vector<int64_t> rows_of_beams;
  const auto continuations = best_continuations(rows);
  for (size_t place = 0; place < continuations.size(); ++place) {
    Beam beam = extended(continuations[place], rows);
    if (!has_ended(beam)) {
      if (going_on.size() == running_.size()) continue;
      rows_of_beams.push_back(static_cast<int64_t>(first_row + continuations[place].beam));
      going_on.push_back(std::move(beam));
    } else if (place < running_.size()) {  // those further behind do not count as finished
      ended.push_back(std::move(beam));
    }
  }
  for (const Beam& beam : ended) finish(beam);
  const bool all_ended = going_on.size() < running_.size();
  if (!all_ended) running_ = std::move(going_on);
  look_whether_done(all_ended);
  return rows_of_beams;
}

std::vector<GeneratedSequence> PromptSearch::results() {
  std::vector<GeneratedSequence> results;
  for (const BeamHypothesis& hypothesis : finished_) {
    const auto number = static_cast<int64_t>(results.size());
    if (number == batch_.options.num_return_sequences) break;
    GeneratedSequence result{.prompt = prompt_, .number = number};
    result.tokens = hypothesis.beam.tokens;
    result.finish = hypothesis.beam.finish;
    result.logprobs = hypothesis.beam.logprobs;
    result.score = hypothesis.score;
    if (batch_.tokenizer != nullptr) {
      std::vector<int32_t> tokens(result.tokens.begin(), result.tokens.end());
      if (result.finish == FinishReason::eos) tokens.pop_back();
      result.text = batch_.tokenizer->decode(tokens);
      for (const std::string& stop : batch_.options.stop) {
        result.text.resize(std::min(result.text.size(), result.text.find(stop)));
      }
    }
    results.push_back(std::move(result));
  }
  return results;
}

std::vector<int64_t> each_repeated(size_t count, int64_t times) {
  std::vector<int64_t> rows;
  for (size_t row = 0; row < count; ++row) {
    rows.insert(rows.end(), static_cast<size_t>(times), static_cast<int64_t>(row));
  }
  return rows;
}

}  // namespace

std::vector<GeneratedSequence> search_beams(const BatchContext& batch) {
  std::vector<PromptSearch> searches;
  for (size_t prompt = 0; prompt < batch.prompts.size(); ++prompt) {
    searches.emplace_back(batch, prompt);
  }
  const int64_t num_beams = batch.options.num_beams;
  at::Tensor scores = host_scores(batch.begin()).repeat_interleave(num_beams, 0);
  batch.model.select_rows(each_repeated(searches.size(), num_beams));
  while (true) {
    std::vector<int64_t> rows, tokens;
    size_t first_row = 0;
    for (PromptSearch& search : searches) {
      if (search.is_done()) continue;
      const auto own = search.step(scores, first_row);
      first_row += search.num_rows();
      if (search.is_done()) continue;
      rows.insert(rows.end(), own.begin(), own.end());
      for (size_t beam = 0; beam < search.num_rows(); ++beam) {
        tokens.push_back(search.last_token(beam));
      }
    }
    if (rows.empty()) break;
    batch.model.select_rows(rows);
    scores = host_scores(batch.next(tokens));
  }
  std::vector<GeneratedSequence> results;
  for (PromptSearch& search : searches)
    std::ranges::move(search.results(), std::back_inserter(results));
  return results;
}

}  // namespace fullshard::generation
