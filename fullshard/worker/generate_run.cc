// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/generate_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "fullshard/base/error.h"
#include "fullshard/base/hub_cache.h"
#include "fullshard/base/launcher_environment.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/engine/plan/sharding.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/generation/cache_size.h"
#include "fullshard/generation/cached_language_model.h"
#include "fullshard/generation/generate.h"
#include "fullshard/generation/generation_config.h"
#include "fullshard/generation/pass_vote.h"
#include "fullshard/generation/progress_vote.h"
#include "fullshard/generation/prompt_file.h"
#include "fullshard/generation/whole_weights.h"
#include "fullshard/text/chat/chat_template.h"
#include "fullshard/train/run/interruption.h"
#include "fullshard/train/run_adapter.h"
#include "fullshard/train/written_folder.h"
#include "fullshard/worker/generation_output.h"
#include "fullshard/worker/measured_steps.h"
#include "fullshard/worker/rank_model.h"
#include "fullshard/worker/weight_residence.h"

namespace fullshard::worker {
namespace {

template <class Value>
void override_with(Value& target, const std::optional<Value>& flag) {
  if (flag) target = *flag;
}

void apply_flags(const RunOptions& run, GenerateOptions& options) {
  const GenerationRunOptions& flags = run.generation;
  override_with(options.max_new_tokens, flags.max_new_tokens);
  override_with(options.min_new_tokens, flags.min_new_tokens);
  override_with(options.temperature, flags.temperature);
  override_with(options.top_k, flags.top_k);
  override_with(options.top_p, flags.top_p);
  override_with(options.min_p, flags.min_p);
  override_with(options.repetition_penalty, flags.repetition_penalty);
  override_with(options.no_repeat_ngram_size, flags.no_repeat_ngram_size);
  override_with(options.num_beams, flags.num_beams);
  override_with(options.length_penalty, flags.length_penalty);
  override_with(options.num_return_sequences, flags.num_return_sequences);
  override_with(options.batch, flags.batch);
  const bool samples = flags.temperature || flags.top_k || flags.top_p || flags.min_p;
  if (samples) options.do_sample = true;
  if (flags.greedy) options.do_sample = false;
  // Beams that a flag requests do not sample, even if a file says so.
  if (flags.num_beams.value_or(1) > 1 && !samples) options.do_sample = false;
  if (samples && !flags.num_beams) options.num_beams = 1;
  if (flags.early_stopping == "true") options.early_stopping = EarlyStopping::at_once;
  if (flags.early_stopping == "false") options.early_stopping = EarlyStopping::heuristic;
  if (flags.early_stopping == "never") options.early_stopping = EarlyStopping::never;
  if (!flags.stop.empty()) options.stop = flags.stop;
  options.prefill_tokens = flags.prefill_tokens;
  options.wants_logprobs = flags.logprobs;
  options.seed = run.seed;
}

std::unique_ptr<Tokenizer> tokenizer_of(const RunOptions& options, const std::string& folder) {
  if (!options.tokenizer.empty())
    return load_tokenizer(base::path_or_cached_model(options.tokenizer));
  return train::has_tokenizer(folder) ? load_tokenizer(folder) : nullptr;
}

std::vector<WrittenPrompt> written_prompts(const GenerationRunOptions& options) {
  std::vector<WrittenPrompt> prompts;
  if (options.prompt) {
    prompts.push_back({.text = *options.prompt, .place = "--prompt"});
    check_prompt_is_text(prompts.back().text, prompts.back().place);
  } else if (!options.prompts.empty()) {
    prompts = read_prompts(options.prompts);
  } else if (const auto kept = base::LauncherEnvironment::of_process().prompts.number()) {
    // Reopened: every rank reads from the start.
    prompts = read_prompt_input(fmt::format("/proc/self/fd/{}", *kept));
  } else {
    prompts = read_prompt_input();
  }
  if (!options.is_chat) return prompts;
  for (WrittenPrompt& prompt : prompts) {
    if (!prompt.messages.is_null() || !prompt.tokens.empty()) continue;
    prompt.messages = {{{"role", "user"}, {"content", prompt.text}}};
  }
  return prompts;
}

// If the flags alone are valid, the file contradicts them.
void check_options(const RunOptions& run, const std::string& file, const GenerateOptions& options) {
  const auto problem = engine::error_of([&] { check_generate_options(options); });
  if (!problem) return;
  GenerateOptions of_flags;
  apply_flags(run, of_flags);
  const bool is_by_file =
      !file.empty() && !engine::error_of([&] { check_generate_options(of_flags); });
  if (!is_by_file) throw *problem;
  fail_as(ErrorKind::input, "{}: {}", file, problem->what());
}

// Flags of beams when there are none.
std::vector<std::string> idle_beam_flags(const GenerationRunOptions& flags,
                                         const GenerateOptions& options) {
  std::vector<std::string> idle;
  if (options.num_beams > 1) return idle;
  if (flags.length_penalty) idle.emplace_back("--length-penalty");
  if (!flags.early_stopping.empty()) idle.emplace_back("--early-stopping");
  for (std::string& flag : idle) flag += ": has no effect without beams; add --num-beams";
  return idle;
}

// Everything that is known before ranks meet.
struct GenerationJob {
  GenerateOptions options;
  std::optional<int64_t> start_token;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<GeneratePrompt> prompts;
  std::vector<nlohmann::ordered_json> shown;  // what lines say of each
  std::vector<std::string> warnings;
};

GenerationJob prepare_job(const RunOptions& options, const RankModel& run) {
  GenerationJob job;
  auto config = load_generation_config(run.source.folder, run.source.config_json);
  job.options = std::move(config.options);
  job.start_token = config.start_token;
  job.warnings = std::move(config.warnings);
  apply_flags(options, job.options);
  check_options(options, config.path, job.options);
  for (std::string& idle : idle_beam_flags(options.generation, job.options)) {
    job.warnings.push_back(std::move(idle));
  }
  job.tokenizer = tokenizer_of(options, run.source.folder);
  if (!job.options.stop.empty() && !job.tokenizer) {
    fail_as(ErrorKind::usage,
            "--stop: the model's folder has no tokenizer; name one with "
            "--tokenizer");
  }
  if (job.options.eos_tokens.empty() && job.tokenizer && job.tokenizer->eos()) {
    job.options.eos_tokens = {*job.tokenizer->eos()};
  }
  const std::string& folder = options.tokenizer.empty() ? run.source.folder : options.tokenizer;
  const auto chat = folder.empty() || folder == "bytes" ? std::nullopt : load_chat_template(folder);
  const PromptEncoder encoder{.tokenizer = job.tokenizer.get(),
                              .chat = chat ? &*chat : nullptr,
                              .ends_prompts = run.model->is_encoder_decoder()};
  for (const WrittenPrompt& prompt : written_prompts(options.generation)) {
    const auto number = static_cast<int64_t>(job.prompts.size());
    job.prompts.push_back({encoder.tokens_of(prompt), number});
    if (prompt.tokens.empty()) {
      job.shown.emplace_back(encoder.text_of(prompt));
    } else {
      job.shown.emplace_back(prompt.tokens);
    }
  }
  return job;
}

// These stages shard gradients and optimizer states, of which there are none here.
void refuse_partial_stages(const ShardingOptions& sharding) {
  const bool is_partial = sharding.zero_stage
                              ? *sharding.zero_stage == 1 || *sharding.zero_stage == 2
                              : sharding.strategy == Strategy::shard_grad_op ||
                                    sharding.strategy == Strategy::hybrid_shard_zero2;
  if (!is_partial) return;
  const std::string what = sharding.zero_stage ? fmt::format("ZeRO stage {}", *sharding.zero_stage)
                                               : std::string(name_of(sharding.strategy));
  fail_as(ErrorKind::usage,
          "generate: {} shards gradients or optimizer states, but generation has neither: every "
          "rank would still hold all parameters; use stage 3 (FULL_SHARD), which shards "
          "them, or stage 0 (NO_SHARD)",
          what);
}

// Which prompts a rank takes in one round: neighbours, as many on every rank.
struct Round {
  size_t first = 0;
  size_t count = 0;
  size_t next = 0;  // the first of the next round
};

Round round_of(size_t begin, size_t num_prompts, const World& world, int64_t batch) {
  const auto ranks = static_cast<size_t>(world.size());
  const size_t left = num_prompts - begin;
  const size_t each = std::min(static_cast<size_t>(batch), (left + ranks - 1) / ranks);
  const size_t first = std::min(begin + each * static_cast<size_t>(world.rank()), num_prompts);
  return {first, std::min(each, num_prompts - first), std::min(begin + each * ranks, num_prompts)};
}

std::string lines_of(const std::vector<GeneratedSequence>& results, const GenerationJob& job,
                     int rank, double seconds) {
  std::string lines;
  for (const GeneratedSequence& sequence : results) {
    lines += line_of(sequence, {.prompt = job.shown[static_cast<size_t>(sequence.prompt)],
                                .has_text = job.tokenizer != nullptr,
                                .is_one_of_several = job.options.num_return_sequences > 1,
                                .is_scored = job.options.num_beams > 1,
                                .rank = rank,
                                .seconds = seconds});
  }
  return lines;
}

// Signals end the run between two steps, so that what is written is whole.
GenerateCallbacks callbacks_of(const train::Interruption& interruption, size_t& num_done,
                               size_t num_prompts, const std::function<void()>& on_step = {}) {
  GenerateCallbacks callbacks;
  callbacks.on_step = [&interruption, &num_done, num_prompts, on_step] {
    if (!interruption.is_asked_for()) {
      if (on_step) on_step();
      return;
    }
    fail_as(ErrorKind::interrupted,
            "generate: {}: {} of {} prompts are done, and their output is written",
            train::interruption_name(interruption.signal()), num_done, num_prompts);
  };
  return callbacks;
}

// Opens the output before anything is computed.
std::unique_ptr<GenerationOutput> open_output(const World& world, const RunOptions& options) {
  std::unique_ptr<GenerationOutput> output;
  const auto problem = engine::error_of([&] {
    if (world.rank() != 0) return;
    output = std::make_unique<GenerationOutput>(options.generation.output, options.overwrite);
  });
  engine::throw_alike(world.communicator(), problem, "output");
  return output;
}

// What a rank made of its prompts of a round, or why its model could not.
struct RoundLines {
  std::string lines;
  std::optional<Error> problem;
};

// Only an error between two passes is kept for later: other ranks may wait for the next passes.
RoundLines make_lines(TokenModel& model, const std::vector<GeneratePrompt>& own,
                      const GenerationJob& job, int rank, const GenerateCallbacks& callbacks) {
  const auto start = std::chrono::steady_clock::now();
  try {
    const auto results = generate(model, own, job.options, job.tokenizer.get(), callbacks);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    return {lines_of(results, job, rank, time.count()), std::nullopt};
  } catch (const NonFiniteLogits& error) {
    return {"", error};
  }
}

// How ranks stay in step: what is called before each step, and when a rank has no more steps to
// make while others may.
struct TogetherCalls {
  std::function<void()> on_step = {};
  std::function<void()> wait_for_all;
};

void write_as_lines(TokenModel& model, const GenerationJob& job, const World& world,
                    GenerationOutput* output, const TogetherCalls& together) {
  const train::Interruption interruption;
  size_t begin = 0;
  const auto callbacks = callbacks_of(interruption, begin, job.prompts.size(), together.on_step);
  while (begin < job.prompts.size()) {
    const Round round = round_of(begin, job.prompts.size(), world, job.options.batch);
    const std::vector<GeneratePrompt> own(
        job.prompts.begin() + static_cast<std::ptrdiff_t>(round.first),
        job.prompts.begin() + static_cast<std::ptrdiff_t>(round.first + round.count));
    const RoundLines made = make_lines(model, own, job, world.rank(), callbacks);
    together.wait_for_all();
    engine::throw_alike(world.communicator(), made.problem, "logits of generation");
    const auto texts = engine::gather_texts(world.communicator(), made.lines, "generated text");
    if (output != nullptr) {
      for (const std::string& text : texts) output->write(text);
    }
    begin = round.next;
  }
}

// Text for the terminal as it is generated, one prompt after the other.
void write_to_terminal(TokenModel& model, GenerationJob job) {
  GenerationOutput output("");
  const train::Interruption interruption;
  const bool streams = job.options.num_beams == 1 && job.options.num_return_sequences == 1;
  for (size_t prompt = 0; prompt < job.prompts.size(); ++prompt) {
    auto callbacks = callbacks_of(interruption, prompt, job.prompts.size());
    if (streams && job.tokenizer) {
      callbacks.on_token = [&output](const TokenEvent& event) {
        output.write(std::string(event.text));
      };
    }
    if (job.prompts.size() > 1) output.write(fmt::format("[{}] ", prompt));
    const auto results =
        generate(model, {job.prompts[prompt]}, job.options, job.tokenizer.get(), callbacks);
    if (streams && job.tokenizer) {
      output.write("\n");
      continue;
    }
    for (const GeneratedSequence& sequence : results) {
      output.write((job.tokenizer ? sequence.text : nlohmann::json(sequence.tokens).dump()) + "\n");
    }
  }
}

// Steps of one token only read weights, which would have to be cast to fp8 first.
void refuse_fp8(const ShardOptions& options) {
  if (options.products == ProductPrecision::operands) return;
  fail_as(ErrorKind::usage, "generate: fp8 is for training; use --precision bf16");
}

// The largest batch that a rank may have to hold.
planning::GenerationBatch largest_batch(const GenerationJob& job, int num_ranks) {
  int64_t longest = 1;
  for (const GeneratePrompt& prompt : job.prompts) {
    longest = std::max(longest, static_cast<int64_t>(prompt.tokens.size()));
  }
  const auto num_prompts = static_cast<int64_t>(job.prompts.size());
  return {.num_prompts = std::min(job.options.batch, (num_prompts + num_ranks - 1) / num_ranks),
          .rows_per_prompt = std::max(job.options.num_beams, job.options.num_return_sequences),
          .prompt_tokens = longest,
          .new_tokens = job.options.max_new_tokens,
          .prefill_tokens = job.options.prefill_tokens};
}

// Absent: decided by what fits.
std::optional<bool> cache_on_host(const std::string& flag) {
  if (flag == "auto") return std::nullopt;
  return flag == "host";
}

// `floor`: seconds that a step takes at least; 0: not known.
void say_start(const WeightResidence& residence, bool keeps_cache_on_host, double floor) {
  for (const std::string& warning : residence.warnings) {
    base::say(fmt::format("warning: {}\n", warning));
  }
  const auto least =
      fmt::format("; a step takes at least {:.2f} ms by memory bandwidth", 1000 * floor);
  base::say(fmt::format("{}{}{}\n", residence.text(),
                        keeps_cache_on_host ? "; keys and values in host memory" : "",
                        floor > 0 ? least : ""));
}

void say_end(const MeasuredSteps& steps, double floor) {
  if (steps.num_steps() == 0) return;
  const double each = steps.seconds_per_step();
  const auto least = fmt::format(
      "; reading the weights at full memory bandwidth takes {:.2f} ms of it", 1000 * floor);
  base::say(fmt::format("{} steps of {:.2f} ms each{}\n", steps.num_steps(), 1000 * each,
                        floor > 0 ? least : ""));
}

}  // namespace

int run_generate(const cli::RunArguments& arguments) {
  const RunOptions& options = arguments.options();
  const RankModel run(options, /*is_trained=*/false);
  run.model->eval();
  GenerationJob job = prepare_job(options, run);
  const World world = meet_ranks(arguments);
  const Plan plan = arguments.plan(world.size(), run.auto_inputs(), world.rank() != 0);
  const generation::PassVote vote(world.communicator());
  CachedModelOptions model_options{.device = world.device(),
                                   .prefill_tokens = job.options.prefill_tokens,
                                   .start_token = job.start_token};
  check_prompts(CachedLanguageModel(*run.model, model_options), job.prompts);
  const bool is_watched = world.size() == 1 && options.generation.output.empty() && !options.json &&
                          ::isatty(STDOUT_FILENO) != 0;
  const auto output = open_output(world, options);
  WeightNeeds needs;
  ShardedModel sharded = run.shard_frozen(world, plan, options, [&](ShardOptions& shard_options) {
    refuse_partial_stages(shard_options.sharding);
    refuse_fp8(shard_options);
    const auto passes = plan_passes(world, [&] {
      return planning::generation_bytes(train::make_planned_model(run.source, options),
                                        {world.device(), shard_options.param_dtype},
                                        largest_batch(job, world.size()));
    });
    needs = weight_needs(*run.model, world, shard_options, passes);
    place_cache(needs, world, generation::cache_size(*run.model).num_layers,
                cache_on_host(options.generation.cache));
    place_weights(needs, world, run.source.has_weights, shard_options);
  });
  const WeightResidence residence =
      weight_residence(sharded, needs, options.generation.resident_share);
  if (world.rank() == 0) {
    run.warn_of_weights();
    for (const std::string& warning : job.warnings) {
      base::say(fmt::format("warning: {}\n", warning));
    }
  }
  const bool tells = world.rank() == 0 && !options.quiet && !is_watched;
  const double floor = tells ? step_floor(residence, world.device()).value_or(0) : 0;
  if (tells) say_start(residence, needs.keeps_cache_on_host, floor);
  std::optional<std::vector<std::string>> resident;
  model_options.weights_stay = residence.units.is_whole();
  model_options.keeps_cache_on_host = needs.keeps_cache_on_host;
  if (!residence.units.is_whole()) {
    resident = residence.units.resident;
    if (world.size() > 1) model_options.vote = &vote;
  }
  generation::WholeWeights weights(sharded, resident);
  generation::ProgressVote progress(world.communicator(), world.timeouts().step);
  TogetherCalls together;
  if (model_options.vote == nullptr) {
    together.on_step = model_options.on_prompt_pass = [&progress] { progress.step(); };
  }
  CachedLanguageModel model(*run.model, model_options);
  together.wait_for_all = [&] {
    if (model_options.vote != nullptr) return model.serve_others();
    progress.wait_for_all();
  };
  MeasuredSteps measured(model);
  if (is_watched) {
    write_to_terminal(measured, std::move(job));
  } else {
    write_as_lines(measured, job, world, output.get(), together);
  }
  weights.close();
  if (tells) say_end(measured, floor);
  return 0;
}

}  // namespace fullshard::worker
