// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

constexpr const char* kTemperatures =
    "a number above 0; the likeliest token is had without sampling";

// Of one prompt. Whether they fit into memory is told later, from tables that have a row for each.
constexpr int64_t kMostSequences = 16'384;
constexpr const char* kSequences = "from 1 to 16384";

class OptionProblems {
 public:
  template <class Value>
  void expect(bool condition, const char* name, const Value& value, const char* expected) {
    if (!condition) texts_.push_back(fmt::format("{} is {}, expected {}", name, value, expected));
  }
  void add(std::string text) { texts_.push_back(std::move(text)); }
  void raise() const {
    if (texts_.empty()) return;
    fail_as(ErrorKind::usage, "generate: {}", fmt::join(texts_, "; "));
  }

 private:
  std::vector<std::string> texts_;
};

void check_lengths(const GenerateOptions& options, OptionProblems& problems) {
  problems.expect(options.max_new_tokens >= 1, "max_new_tokens", options.max_new_tokens,
                  "at least 1");
  problems.expect(options.min_new_tokens >= 0, "min_new_tokens", options.min_new_tokens,
                  "0 or more");
  problems.expect(options.batch >= 1, "batch", options.batch, "at least 1");
  problems.expect(options.prefill_tokens >= 1, "prefill_tokens", options.prefill_tokens,
                  "at least 1");
}

// Files that ask for the likeliest token often say so by a temperature of 0 too.
void check_choice(const GenerateOptions& options, OptionProblems& problems) {
  problems.expect(options.temperature >= 0, "temperature", options.temperature, kTemperatures);
  problems.expect(options.top_k >= 0, "top_k", options.top_k, "0 (all) or more");
  problems.expect(options.top_p > 0 && options.top_p <= 1, "top_p", options.top_p,
                  "above 0 and at most 1");
  problems.expect(options.min_p >= 0 && options.min_p <= 1, "min_p", options.min_p, "from 0 to 1");
  problems.expect(options.repetition_penalty > 0, "repetition_penalty", options.repetition_penalty,
                  "a number above 0");
  problems.expect(options.no_repeat_ngram_size >= 0, "no_repeat_ngram_size",
                  options.no_repeat_ngram_size, "0 (none) or more");
}

void check_sequences(const GenerateOptions& options, OptionProblems& problems) {
  problems.expect(options.num_beams >= 1 && options.num_beams <= kMostSequences, "num_beams",
                  options.num_beams, kSequences);
  problems.expect(
      options.num_return_sequences >= 1 && options.num_return_sequences <= kMostSequences,
      "num_return_sequences", options.num_return_sequences, kSequences);
  const auto is_empty = [](const std::string& text) { return text.empty(); };
  if (std::ranges::any_of(options.stop, is_empty)) problems.add("a stop text is empty");
}

void check_values(const GenerateOptions& options, OptionProblems& problems) {
  check_lengths(options, problems);
  check_choice(options, problems);
  check_sequences(options, problems);
}

void check_together(const GenerateOptions& options, OptionProblems& problems) {
  problems.expect(options.min_new_tokens <= options.max_new_tokens, "min_new_tokens",
                  options.min_new_tokens, "at most max_new_tokens");
  problems.expect(options.temperature != 0 || !options.do_sample, "temperature",
                  options.temperature, kTemperatures);
  const bool searches = options.num_beams > 1;
  if (searches && options.do_sample) {
    problems.add("beam search does not sample; set num_beams to 1 or do_sample to false");
  }
  if (searches && options.num_return_sequences > options.num_beams) {
    problems.add(fmt::format("num_return_sequences is {}, but there are {} beams",
                             options.num_return_sequences, options.num_beams));
  }
  if (!searches && !options.do_sample && options.num_return_sequences > 1) {
    problems.add(
        fmt::format("num_return_sequences is {}, but without sampling or beams all would be "
                    "the same",
                    options.num_return_sequences));
  }
}

}  // namespace

void check_generate_options(const GenerateOptions& options) {
  OptionProblems problems;
  check_values(options, problems);
  check_together(options, problems);
  problems.raise();
}

void check_generate_values(const GenerateOptions& options) {
  OptionProblems problems;
  check_values(options, problems);
  problems.raise();
}

}  // namespace fullshard
