// SPDX-License-Identifier: Apache-2.0
// The flags of `generate` other than those that it shares with other commands.
#include <CLI/CLI.hpp>

#include "fullshard/cli/flags/run_arguments.h"

#include "fullshard/cli/flags/value_checks.h"

namespace fullshard::cli {
namespace {

constexpr const char* kPrompts = "Prompts";
constexpr const char* kSearch = "Choice of tokens";

}  // namespace

void RunArguments::add_generation() {
  GenerationRunOptions& own = options_.generation;
  auto* prompt = command_->add_option("--prompt", own.prompt, "the text to continue");
  auto* prompts = command_->add_option(
      "--prompts", own.prompts,
      "a file: .txt, a prompt per line, or .jsonl and .ndjson, objects with prompt, messages or "
      "tokens; "
      "default: standard input");
  prompt->group(kPrompts)->excludes(prompts);
  prompts->group(kPrompts);
  command_->add_flag("--chat", own.is_chat, "texts are what a user says, for the chat template")
      ->group(kPrompts);
  command_->add_option("-o,--output", own.output, "JSON lines go to this file")->group(kPrompts);
  command_->add_flag("--overwrite", options_.overwrite, "even if the file exists and is not empty")
      ->group(kPrompts);
  command_
      ->add_option("--resident-share", own.resident_share,
                   "largest share of the weights that stays on the device; the rest is fetched in "
                   "every step; default: all that fits, with --offload none")
      ->check(within(0.0, 1.0))
      ->group(kPrompts);
  command_
      ->add_option("--cache", own.cache,
                   "where keys and values are: device, host, or auto: the host where the device "
                   "has no room for them")
      ->check(one_of({"auto", "device", "host"}))
      ->capture_default_str()
      ->group(kPrompts);
  command_->add_option("--batch", own.batch, "prompts of a rank at a time; default: 8")
      ->check(above_zero())
      ->group(kPrompts);
  command_
      ->add_option("--prefill-tokens", own.prefill_tokens,
                   "tokens of a prompt that are read at once")
      ->check(above_zero())
      ->capture_default_str()
      ->group(kPrompts);
  command_->add_flag("--logprobs", own.logprobs, "the log probability of every token")
      ->group(kPrompts);
}

// Defaults come from the model, which only fullshard-core reads, so there are none here.
void RunArguments::add_search() {
  GenerationRunOptions& own = options_.generation;
  const auto add = [this](const char* name, auto& value, const char* help) {
    return command_->add_option(name, value, help)->group(kSearch);
  };
  add("--max-new-tokens", own.max_new_tokens, "maximum per sequence; default: 128")
      ->check(above_zero());
  add("--min-new-tokens", own.min_new_tokens, "no end of a sequence before them")
      ->check(at_least_zero());
  auto* greedy =
      command_->add_flag("--greedy", own.greedy, "always the likeliest token")->group(kSearch);
  for (auto* samples :
       {add("--temperature", own.temperature, "sample; above 1 evens out, below 1 sharpens")
            ->check(above_zero()),
        add("--top-k", own.top_k, "sample from this many likeliest tokens; 0: all; default: 50")
            ->check(at_least_zero()),
        add("--top-p", own.top_p, "sample from the likeliest tokens that have this probability")
            ->check(within(0.0, 1.0)),
        add("--min-p", own.min_p, "sample from tokens with this share of the likeliest one's")
            ->check(within(0.0, 1.0))}) {
    samples->excludes(greedy);
  }
  add("--repetition-penalty", own.repetition_penalty,
      "above 1: tokens that appeared are unlikelier")
      ->check(above_zero());
  add("--no-repeat-ngram", own.no_repeat_ngram_size,
      "no sequence of this many tokens appears twice")
      ->check(at_least_zero());
  add("--num-beams", own.num_beams, "beam search with this many beams")->check(above_zero());
  add("--length-penalty", own.length_penalty, "for beams: above 0 prefers longer ones");
  add("--early-stopping", own.early_stopping, "for beams: true, false or never")
      ->check(one_of({"true", "false", "never"}));
  add("--num-return-sequences", own.num_return_sequences, "sequences per prompt")
      ->check(above_zero());
  add("--stop", own.stop, "a text or special token that ends a sequence; may be repeated")
      ->expected(1)
      ->take_all();
}

}  // namespace fullshard::cli
