// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/train_run.h"

#include <ATen/Context.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/launcher_environment.h"
#include "fullshard/base/rank_notice.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/config/effective_settings.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/optim/precision.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/report/trace_events.h"
#include "fullshard/train/adapter.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/new_head.h"
#include "fullshard/train/run/comms_log.h"
#include "fullshard/train/run/flops_table.h"
#include "fullshard/train/run/interruption.h"
#include "fullshard/train/run/kept_memory.h"
#include "fullshard/train/run/peak_matmul_flops.h"
#include "fullshard/train/run/resumed_data.h"
#include "fullshard/train/run/run_account.h"
#include "fullshard/train/run/run_data.h"
#include "fullshard/train/run/trainer.h"
#include "fullshard/train/run_adapter.h"
#include "fullshard/train/run_settings.h"
#include "fullshard/train/unused_head.h"
#include "fullshard/worker/flops_profile.h"
#include "fullshard/worker/idle_flags.h"
#include "fullshard/worker/memory_forecast.h"
#include "fullshard/worker/rank_model.h"
#include "fullshard/worker/train_facts.h"
#include "fullshard/worker/train_folder.h"

namespace fullshard::worker {
namespace {

constexpr int kInterrupted = 130;

LastBatch last_batch(const RunOptions& options, const train::RunSettings& settings) {
  return options.drop_last || settings.drops_last_batch ? LastBatch::dropped : LastBatch::kept;
}

Order order_of(const RunOptions& options) {
  return options.order == "sequential" ? Order::sequential : Order::shuffled;
}

RunLength length_of(const RunOptions& options, const ExampleOrder& order) {
  const double epochs = options.epochs > 0 ? options.epochs : 1;
  return {options.steps > 0 ? options.steps : order.steps_of(epochs), order.batches_per_epoch()};
}

double peak_flops_of_all(const World& world, const Plan& plan) {
  const auto roofs = world.communicator().allocate(1, at::kDouble);
  const auto dtype = precision_of(plan).compute.value_or(at::kFloat);
  roofs.fill_(train::measure_peak_matmul_flops(dtype, world.device()));
  world.communicator().all_reduce(roofs, ReduceOp::sum, "product roof").wait();
  return roofs.item<double>();
}

CheckpointOptions checkpoint_options(const RunOptions& options,
                                     const train::RunSettings& settings) {
  return {.is_node_local = settings.is_node_local,
          .num_kept = static_cast<int>(options.keep),
          .leaves_out_frozen = train::has_adapter(options),
          .tag_validation = settings.tag_validation};
}

TrainerOptions trainer_options(const RunOptions& options, const Plan& plan,
                               const train::RunSettings& settings, const BatchSizes& batch,
                               const RunLength& length) {
  const auto in_steps = [&](const StepInterval& interval) {
    return interval.steps_of(length.steps, length.steps_per_epoch);
  };
  return {.steps = length.steps,
          .global_batch = batch.global_batch,
          .micro_batch = batch.micro_batch,
          .accumulation = batch.accumulation,
          .reduces_once = options.reduce_once,
          .order = order_of(options),
          .last_batch = last_batch(options, settings),
          .seed = options.seed,
          .label_smoothing = options.label_smoothing,
          .log_every = options.log_every,
          .eval_every = in_steps(options.eval_every),
          .checkpoint_folder = options.output + "/checkpoints",
          .save_every = in_steps(options.save_every),
          .async_save = options.async_save,
          .checkpoints = checkpoint_options(options, settings),
          .saves_whole_weights = settings.saves_whole_weights,
          .keeps_best = options.keep_best || options.restore_best,
          .records_phases = settings.records_phases || !options.trace.empty(),
          .graphs = options.graphs,
          .traces = !options.trace.empty(),
          .evaluation = {.micro_batch = options.eval_micro_batch > 0 ? options.eval_micro_batch
                                                                     : batch.micro_batch,
                         .max_batches = options.eval_batches,
                         .seed = options.seed,
                         .dtype = evaluation_dtype(options, plan)},
          .early_stopping = {.patience = options.early_stopping_patience,
                             .threshold = options.early_stopping_threshold}};
}

// Flags about evaluations need evaluations, and parameters that are gathered in 16 bits cannot be
// evaluated otherwise.
void check_evaluation(const RunOptions& options, const Plan& plan) {
  const auto trained = precision_of(plan).compute;
  const auto asked = asked_evaluation_dtype(options);
  if (trained && asked && *asked != *trained) {
    fail_as(ErrorKind::usage,
            "--eval-precision: is {}, but this run gathers its parameters in {}; leave it out, or "
            "evaluate what is saved with fullshard eval --eval-precision {}",
            options.eval_precision, c10::toString(*trained), options.eval_precision);
  }
  const bool evaluates = !options.eval_data.empty() || options.validation_split > 0;
  if (!options.eval_data.empty() && options.validation_split > 0) {
    fail_as(ErrorKind::usage,
            "--validation-split: is given with --eval-data; give one of them, the run is evaluated "
            "on one data set");
  }
  if (options.early_stopping_patience > 0 && (!evaluates || !options.eval_every.is_set())) {
    fail_as(ErrorKind::usage,
            "--early-stopping-patience: counts evaluations; give --eval-every, and --eval-data or "
            "--validation-split");
  }
  if (options.early_stopping_threshold > 0 && options.early_stopping_patience == 0) {
    fail_as(ErrorKind::usage,
            "--early-stopping-threshold: has no effect without --early-stopping-patience");
  }
}

std::string model_type_of(const LanguageModel& model) {
  return model.is_encoder_decoder() ? "t5" : "";
}

// One command's parts, in the order in which they are made.
class TrainRun {
 public:
  TrainRun(const cli::RunArguments& arguments, const std::vector<std::string>& command)
      : launcher_(base::LauncherEnvironment::of_process()),
        options_(arguments.options()),
        command_(command),
        config_file_(arguments.config_file()),
        run_(options_, /*is_trained=*/true),
        world_(meet_ranks(arguments)),
        folder_(options_, world_, launcher_),
        plan_(train::plan_of_run(
            arguments.plan(world_.size(), run_.auto_inputs(), world_.rank() != 0),
            launcher_.measured)),
        settings_(train::run_settings_of(plan_)),
        batch_(plan_.batch_sizes(world_.size())),
        told_(config::effective_settings(
            plan_, options_, world_.size(),
            [&](std::string_view flag) { return arguments.was_given(flag); })),
        comms_(settings_.comms_log) {}

  int run() {
    check_evaluation(options_, plan_);
    on_first_rank([&] { forecast_memory(); });
    on_first_rank([&] { folder_.claim(); });
    folder_.choose_checkpoint();
    on_first_rank([&] { folder_.check(); });
    base::tell_launcher(launcher_.meeting, base::RankNotice::accepts_folder);
    const train::RunData data = open_data_in_turn();
    std::optional<ShardedModel> sharded;
    for (;;) {
      if (const auto status = run_from(data, sharded)) return *status;
    }
  }

 private:
  // Nothing: the checkpoint could not be loaded, and an older one has to be.
  std::optional<int> run_from(const train::RunData& data, std::optional<ShardedModel>& made) {
    const auto& resumed = folder_.resumed();
    const Progress progress = folder_.progress();
    const ExampleOrder order(data.train->size(), batch_.global_batch, order_of(options_),
                             options_.seed, last_batch(options_, settings_),
                             train::data_start(progress));
    const RunLength length = length_of(options_, order);
    check_steps_left(progress.step, length.steps);
    check_ranks_agree(world_, told_, plan_.checkpoint, options_, length, data,
                      run_.source.has_weights && !resumed ? run_.source.folder : "");
    if (!made) {
      made = run_.shard(world_, plan_, options_, !resumed);
    } else if (run_.adapter) {  // the failed load may have changed the base
      run_.fill(*made, options_);
    }
    ShardedModel& sharded = *made;
    TrainerOptions options = trainer_options(options_, plan_, settings_, batch_, length);
    options.data_start = train::data_start(progress);
    options.peak_matmul_flops = peak_flops_of_all(world_, plan_);
    // After the measurement, which draws as many numbers as there is time for: dropout is then the
    // same in every run.
    at::manual_seed(options_.seed + static_cast<uint64_t>(world_.rank()));
    if (settings_.flops_profiler.is_enabled) {
      options.profiled_step = settings_.flops_profiler.step;
    }
    options.before_step = [this, profiled = options.profiled_step](int64_t step) {
      if (flops_ && step == profiled) flops_->begin();
    };
    options.after_step = [this, &sharded] {
      if (flops_) flops_->end();
      log_collectives(sharded);
    };
    if (settings_.withholds_model && options.save_every == 0) options.save_every = length.steps;
    if (options.save_every > 0) folder_.check_checkpoints(sharded, settings_.is_node_local);
    options.adapter = run_.adapter;
    Trainer trainer(*run_.model, sharded, plan_, *data.train, data.evaluation.get(), options);
    const auto loaded_step = resumed ? resume(trainer) : 0;
    if (!loaded_step) return std::nullopt;
    const int64_t first_step = *loaded_step;
    // From here on a signal must not leave the folder without a record, or with an open one.
    train::Interruption interruption(world_.rank() == 0 ? notice(options.save_every > 0) : "",
                                     ends_line_ ? "\n" : "");
    folder_.clear(config_file_, plan_);
    const bool misses_best = resumed && trainer.has_best() &&
                             (options_.keep_best || options_.restore_best) && !folder_.holds_best();
    if (misses_best) trainer.forget_best();
    train::RunAccount account(options_, command_, launcher_, plan_, *run_.model, sharded,
                              length.steps, first_step, forecast_.tiers, told_);
    account_ = &account;
    if (options.profiled_step > 0 && world_.rank() == 0) {
      flops_.emplace(options_, run_.source, plan_, sharded);
    }
    warn_of_profile(options.profiled_step, first_step, length.steps);
    tell_start(data, trainer, first_step);
    tell_ignored(interruption);
    if (misses_best) {
      account.warn(
          fmt::format("{}: {}/best does not exist: evaluations before step {} do not count",
                      options_.restore_best ? "--restore-best" : "--keep-best", options_.output,
                      first_step + 1));
    }
    if (resumed) {
      for (const std::string& change :
           train::changes_of_data(progress, order, data.train->mixture())) {
        account.warn(change);
      }
    }
    try {
      train(data, sharded, trainer, account, interruption);
    } catch (const std::exception& error) {
      try {
        account.finish(RunStatus::failed, error.what(), trainer.last_saved());
      } catch (const Error& second) {  // a disk that is full: the first one says why
        base::say(fmt::format("warning: {}\n", second.what()));
      }
      throw;
    }
    interruption.ignore_from_now();  // the record says how it ended
    account.summarise(places_);
    return trainer.was_interrupted() ? kInterrupted : 0;
  }

  // Collective. Nothing: an older checkpoint is to be loaded.
  std::optional<int64_t> resume(Trainer& trainer) {
    try {
      return trainer.resume(*folder_.resumed());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input || !folder_.take_older()) throw;
    }
    return std::nullopt;
  }

  // Collective: what fails there fails on all.
  void on_first_rank(const std::function<void()>& act) {
    engine::throw_alike(world_.communicator(),
                        world_.rank() == 0 ? engine::error_of(act) : std::nullopt, "output");
  }

  // Runs before anything is changed: a run that cannot fit leaves everything as it was.
  void forecast_memory() {
    if (options_.plans_memory) {
      forecast_ = forecast_training(options_, run_.source, plan_, world_);
    }
  }

  void check_steps_left(int64_t done, int64_t steps) const {
    if (options_.steps == 0 || done <= steps) return;
    fail_as(ErrorKind::usage,
            "--steps: is {}, but {} was saved after step {}; give more steps, or resume from an "
            "earlier checkpoint",
            steps, folder_.resumed()->path(), done);
  }

  static std::string notice(bool saves) {
    return fmt::format("the step is being finished{}; a second signal ends the run at once",
                       saves ? " and a checkpoint saved"
                             : ", and no checkpoint saved, because --save-every is not given");
  }

  // Rank 0 first: what it had to tokenise is in the run's folder then, and the others map it.
  train::RunData open_data_in_turn() {
    RunOptions options = options_;
    options.cache_folder = options_.output + "/cache";
    std::optional<train::RunData> data;
    const auto open = [&] {
      data = train::open_run_data(options, run_.source.folder, *run_.model);
    };
    const bool is_first = world_.rank() == 0;
    engine::throw_alike(world_.communicator(), is_first ? engine::error_of(open) : std::nullopt,
                        "data");
    engine::throw_alike(world_.communicator(), is_first ? std::nullopt : engine::error_of(open),
                        "data");
    return std::move(*data);
  }

  void warn_of_profile(int64_t profiled, int64_t first_step, int64_t steps) {
    if (profiled <= steps && (profiled == 0 || profiled > first_step)) return;
    account_->warn(
        fmt::format("flops_profiler.profile_step: is {}, but this run makes steps {} to {}; "
                    "nothing is profiled",
                    profiled, first_step + 1, steps));
  }

  void tell_start(const train::RunData& data, const Trainer& trainer, int64_t first_step) {
    train::RunAccount& account = *account_;
    const bool is_new = !folder_.resumed();
    if (!forecast_.warning.empty()) account.warn(forecast_.warning);
    if (run_.adapter) account.say(train::adapter_text(*run_.model));
    if (run_.adapter && !run_.source.has_weights) {
      account.warn(fmt::format(
          "--lora-rank: {} has no weights: the base has random weights, which are not saved",
          run_.source.name));
    }
    if (!is_new) {
      account.say(fmt::format("resumed after step {}: {}", first_step, folder_.resumed()->path()));
    }
    if (is_new && !run_.source.folder.empty() && !run_.source.has_weights &&
        !options_.from_scratch) {
      account.warn(run_.source.new_weights_warning());
    }
    for (const std::string& idle : idle_flags(options_, *run_.model)) account.warn(idle);
    for (const std::string& warning : data.warnings()) account.warn(warning);
    warn_of_precision(account);
    for (const std::string& warning : trainer.warnings()) account.warn(warning);
    if (is_new && !run_.drawn.empty() && !options_.new_head) {
      account.warn(train::new_head_warning(run_.source, run_.drawn));
    }
    if (is_new && world_.rank() == 0) {
      for (const std::string& warning : train::unused_head_warnings(run_.source, *run_.model)) {
        account.warn(warning);
      }
    }
  }

  void tell_ignored(const train::Interruption& interruption) {
    if (!options_.verbose) return;
    for (const std::string& name : interruption.ignored()) {
      account_->say(name + " is ignored, as at the start of the run");
    }
  }

  void warn_of_precision(train::RunAccount& account) const {
    const std::string dtype = run_.source.dtype();
    for (const std::string& warning : precision_warnings(
             precision_of(plan_), dtype.empty() ? std::nullopt : std::optional(dtype),
             model_type_of(*run_.model))) {
      account.warn(warning);
    }
  }

  // Rank 0's; the others' are alike.
  void log_collectives(const ShardedModel& sharded) {
    if (world_.rank() != 0) return;
    for (const std::string& line : comms_.take(sharded.recorder())) account_->say(line);
  }

  // The log adds the end of the last line.
  void say_table(std::string table) {
    if (table.ends_with('\n')) table.pop_back();
    account_->say(table);
  }

  void show_collectives() {
    const std::string table = comms_.summary();
    if (!table.empty()) say_table("collectives of rank 0:\n" + table);
  }

  // Shows the profile once, when its step is over.
  void show_flops(const Trainer& trainer) {
    if (!flops_ || !trainer.profiled()) return;
    const StepRecord& step = *trainer.profiled();
    const std::string table =
        train::flops_table(flops_->profile_of(step), settings_.flops_profiler);
    flops_.reset();
    const auto& file = settings_.flops_profiler.output_file;
    if (!file) return say_table(table);
    try {
      report::write_whole_file(*file, table);
      account_->say(fmt::format("flops profile of step {}: {}", step.step, *file));
    } catch (const Error& error) {
      account_->warn(fmt::format("flops_profiler.output_file: {}", error.what()));
    }
  }

  // A failure here does not end the run.
  void write_trace(const Trainer& trainer, train::RunAccount& account) {
    if (options_.trace.empty() || world_.rank() != 0) return;
    try {
      report::write_whole_file(options_.trace, report::trace_events(trainer.trace(), "phases"));
      places_.emplace_back("timeline", options_.trace);
    } catch (const Error& error) {
      account.warn(fmt::format("--trace: {}", error.what()));
    }
  }

  // A model that no step has changed is not written as a trained one. Without a model to write, as
  // when a few steps are measured, it is a warning.
  void judge_skipped_steps(const Trainer& trainer, train::RunAccount& account) const {
    const int64_t steps = trainer.num_steps(), skipped = trainer.num_skipped();
    if (2 * skipped <= steps) return;
    const bool is_half = precision_of(plan_).compute == at::kHalf;
    const std::string text = fmt::format(
        "{}{} of {} steps were skipped, because their gradients were not finite; {}",
        skipped == steps ? "nothing was learnt: " : "", skipped, steps,
        is_half ? "begin with a lower loss scale (fp16.initial_scale_power), or train in bf16"
                : "lower --lr, or look for values in the data that are not finite");
    const bool writes = options_.save_model && !trainer.was_interrupted();
    if (skipped == steps && writes) fail("{}; no model is written", text);
    account.warn(text);
  }

  // Saves what was trained: the model, or the adapter alone.
  void save_result(const std::string& folder, ShardedModel& sharded, const std::string& tokenizer) {
    if (run_.adapter) {
      const bool classifies = !run_.model->class_names().empty();
      save_adapter(folder, sharded, *run_.adapter,
                   {.dtype = settings_.saved_dtype,
                    .tokenizer = tokenizer,
                    .config_json = classifies ? run_.model->config_json() : ""});
    } else {
      save_model_folder(folder, *run_.model, sharded,
                        {.dtype = settings_.saved_dtype, .tokenizer = tokenizer});
    }
  }

  void load_result(const std::string& folder, ShardedModel& sharded) {
    run_.adapter ? load_adapter(folder, sharded) : load_model_weights(folder, *run_.model, sharded);
  }

  void train(const train::RunData& data, ShardedModel& sharded, Trainer& trainer,
             train::RunAccount& account, const train::Interruption& interruption) {
    const auto save = [&](const std::string& name) {
      save_result(options_.output + "/" + name, sharded, data.tokenizer_path);
    };
    const auto keep_best = [&](int64_t step, double loss) {
      save("best");
      account.say(fmt::format("step {}: evaluation loss {:.4f}, kept as best", step, loss));
    };
    const auto on_step = [&](const StepRecord& record) {
      account.add(record);
      show_flops(trainer);
    };
    trainer.run(on_step, options_.keep_best || options_.restore_best ? OnBest(keep_best) : OnBest(),
                [&] { return interruption.is_asked_for(); });
    show_flops(trainer);
    if (world_.rank() == 0) show_collectives();
    account.take_memory(sharded);
    account.take_disk_traffic(sharded);
    places_ = {{"report", options_.output + "/report.html"}};
    write_trace(trainer, account);
    judge_skipped_steps(trainer, account);
    if (!trainer.last_saved().empty()) places_.emplace_back("checkpoint", trainer.last_saved());
    if (options_.restore_best && trainer.has_best() && base::is_folder(options_.output + "/best")) {
      load_result(options_.output + "/best", sharded);
    }
    if (settings_.withholds_model) {
      account.say(fmt::format(
          "no model/, because stage3_gather_16bit_weights_on_model_save is false; to get one: "
          "fullshard checkpoint export {0}/checkpoints OUT, or for torch.load fullshard checkpoint "
          "to-fp32 {0}/checkpoints OUT",
          options_.output));
    } else if (options_.save_model && !trainer.was_interrupted()) {
      const std::string name = run_.adapter ? "adapter" : "model";
      save(name);
      places_.emplace_back(name, options_.output + "/" + name);
    }
    if (!trainer.was_interrupted()) {
      account.stop_early(trainer.stopped_early());
      return account.finish(RunStatus::finished, "", trainer.last_saved());
    }
    const int signal = interruption.signal();
    account.finish(RunStatus::interrupted,
                   signal == 0 ? "a signal to another rank" : train::interruption_name(signal),
                   trainer.last_saved());
  }

  const base::LauncherEnvironment launcher_;
  // A progress line on a terminal has no newline yet.
  const bool ends_line_ = launcher_.terminal || ::isatty(STDERR_FILENO) != 0;
  const RunOptions& options_;
  const std::vector<std::string>& command_;
  const std::string config_file_;
  RankModel run_;
  World world_;
  TrainFolder folder_;
  Plan plan_;
  train::RunSettings settings_;
  BatchSizes batch_;
  std::vector<config::EffectiveSetting> told_;
  train::CommsLog comms_;
  std::optional<FlopsProfiler> flops_;                       // rank 0's, until it was shown
  train::RunAccount* account_ = nullptr;                     // while run() runs
  MemoryForecast forecast_;                                  // rank 0's
  std::vector<std::pair<std::string, std::string>> places_;  // for the summary
};

}  // namespace

int run_train(const cli::RunArguments& arguments, const std::vector<std::string>& command) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe must not end a run
  if (arguments.device() == "cpu") train::keep_freed_memory();
  return TrainRun(arguments, command).run();
}

}  // namespace fullshard::worker
