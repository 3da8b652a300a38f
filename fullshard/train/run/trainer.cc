// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/trainer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/checkpoint/save_request.h"
#include "fullshard/engine/gradients/norm_riders.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/memory/host_number.h"
#include "fullshard/stored/model_record.h"
#include "fullshard/train/adapter.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/loss_weight.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/run/peak_memory.h"
#include "fullshard/train/run/resume.h"
#include "fullshard/train/run/resumed_data.h"
#include "fullshard/train/run_settings.h"
#include "fullshard/train/trained_flops.h"

namespace fullshard {
namespace {

// Every token of every rank has a label: nothing needs to be counted across ranks.
bool counts_are_equal(const std::vector<train::StepBatch>& batches) {
  return std::all_of(batches.begin(), batches.end(),
                     [](const train::StepBatch& batch) { return batch.labels_all_tokens; });
}

// Sizes that do not multiply up would train with another batch than was asked for.
TrainerOptions checked(const TrainerOptions& options, int64_t num_ranks) {
  const int64_t product = options.micro_batch * options.accumulation * num_ranks;
  check(options.micro_batch == 0 || product == options.global_batch,
        "a step of {} examples: micro-batches of {}, {} of them in a step, on {} ranks are {}",
        options.global_batch, options.micro_batch, options.accumulation, num_ranks, product);
  if (options.reduces_once && options.accumulation == 1) {
    fail_as(ErrorKind::usage,
            "--reduce-once: a step has one micro-batch, which is reduced once anyway; give "
            "--accumulate, or drop the flag");
  }
  return options;
}

}  // namespace

Trainer::Trainer(LanguageModel& model, ShardedModel sharded, const Plan& plan, const Dataset& data,
                 const Dataset* evaluation, const TrainerOptions& options)
    : model_(model),
      sharded_(std::move(sharded)),
      plan_(plan),
      device_(sharded_.mesh().world().device()),
      evaluation_(evaluation),
      options_(checked(options, sharded_.mesh().world().size())),
      optimizer_(make_optimizer(sharded_, plan)),
      scheduler_(std::make_unique<LrScheduler>(make_schedule(plan, options.steps), *optimizer_)),
      order_(data.size(), options.global_batch, options.order, options.seed, options.last_batch,
             options.data_start),
      mixture_(data.mixture()) {
  StepperOptions stepper = stepper_options_of(plan, sharded_.mesh().world().size());
  stepper.accumulation_steps = static_cast<int>(options.accumulation);
  stepper.reduces_once = options.reduces_once;
  stepper_ = std::make_unique<Stepper>(sharded_, *optimizer_, stepper, scheduler_.get());
  // Where a step is looked at in parts, the host has a part in them.
  pass_ = std::make_unique<train::MicroBatchPass>(model, sharded_, *stepper_,
                                                  /*may_repeat=*/options.graphs &&
                                                      !options.records_phases && !options.traces &&
                                                      !options.reduces_once);
  const World& world = sharded_.mesh().world();
  auto loader = std::make_unique<Loader>(data, order_,
                                         LoaderOptions{.seed = options.seed,
                                                       .num_accumulation = options.accumulation,
                                                       .rank = world.rank(),
                                                       .num_ranks = world.size()},
                                         options.data_start.step);
  batches_ =
      std::make_unique<train::StepBatches>(std::move(loader), model, device_, options.accumulation);
}

Trainer::~Trainer() = default;

std::vector<double> Trainer::weights_of(const std::vector<train::StepBatch>& batches) const {
  const Communicator& everyone = sharded_.mesh().world().communicator();
  if (counts_are_equal(batches)) return std::vector<double>(batches.size(), 1.0);
  std::vector<int64_t> labels;
  for (const train::StepBatch& batch : batches) labels.push_back(batch.num_labels);
  return loss_weights(everyone, labels);
}

void Trainer::mark(train::StepClock& clock, double PhaseTimes::*phase) const {
  if (waits_at_marks_) {
    memory::synchronise(device_);
    sharded_.recorder().settle();
  }
  clock.mark(phase);
}

at::Tensor Trainer::run_pass(const ModelInputs& inputs, double weight, train::StepClock& clock) {
  if (device_.is_cuda() && !waits_at_marks_) return pass_->run(inputs, weight);
  return pass_->run_in_parts(inputs, weight, [&] { mark(clock, &PhaseTimes::forward_s); });
}

// An accelerator is waited for once in a step: for the norm, when the update that follows it has
// been given to it too. What the host does after that, to the first work of the next step, lies
// under the update.
StepRecord Trainer::train_step(int64_t step) {
  if (!clock_) clock_.emplace(sharded_.recorder());
  waits_at_marks_ = options_.records_phases || step + 1 == options_.profiled_step;
  train::StepClock& clock = *clock_;
  clock.pass();
  std::vector<train::StepBatch> batches = batches_->take();
  const std::vector<double> weights = weights_of(batches);
  clock.mark(&PhaseTimes::data_s);

  std::vector<memory::HostNumber> losses;
  int64_t tokens = 0;
  for (size_t part = 0; part < batches.size(); ++part) {
    tokens += batches[part].tokens.num_tokens();
    ModelInputs& inputs = batches[part].inputs;
    inputs.label_smoothing = options_.label_smoothing;
    inputs.num_labels = batches[part].num_labels;
    losses.emplace_back(run_pass(inputs, weights[part], clock));
    mark(clock, &PhaseTimes::backward_s);
  }
  // A checkpoint under a name: rank 0 looks, all of them save.
  const bool looks = sharded_.mesh().world().rank() == 0;
  requested_ = looks ? checkpoint::take_save_request(options_.checkpoint_folder) : std::nullopt;
  if (step + 1 < options_.steps) batches_->bring_next();
  clock.mark(&PhaseTimes::data_s);
  saver_.settle();
  const auto own_totals = [&] {
    double loss = 0;
    for (const memory::HostNumber& weighed : losses) loss += weighed.wait();
    return own_totals_of(step + 1, loss / static_cast<double>(batches.size()), tokens);
  };
  engine::NormRiders riders(totals_ride() ? own_totals() : std::vector<double>());
  const StepReport report = stepper_->step(&riders);
  const bool have_come = riders.have_arrived();
  const std::vector<double> own = totals_ride() ? riders.own() : own_totals();
  mark(clock, &PhaseTimes::optimizer_s);

  StepRecord record;
  record.step = step + 1;
  record.lr = report.lr;
  if (!std::isnan(report.grad_norm)) record.grad_norm = report.grad_norm;
  record.loss_scale = report.loss_scale;
  record.skipped = report.skipped;
  add_totals(record, have_come ? train::StepTotals(riders.rows())
                               : train::StepTotals(sharded_.mesh().everyone(), own, "step totals"));
  if (have_come) add_last_peaks(record);
  record.step_s = clock.seconds();
  record.tokens_per_s = static_cast<double>(record.tokens) / record.step_s;
  if (options_.peak_matmul_flops > 0) {
    const int64_t columns = std::max<int64_t>(batches.front().tokens.columns, 1);
    const double per_token = train::trained_flops_per_token(model_, columns);
    record.mfu = per_token * record.tokens_per_s / options_.peak_matmul_flops;
  }
  record.exposed_comm_s = clock.exposed();
  record.comm_s = clock.communicating();
  if (options_.records_phases) record.phases = clock.phases();
  if (record.step == options_.profiled_step) {
    profiled_ = record;
    profiled_->phases = clock.phases();
  }
  if (options_.traces) trace_.add(step + 1, clock.spans());
  add_offload_times(record);
  clock_.emplace(sharded_.recorder());  // the device may be computing still: no moment is left out
  return record;
}

// Of this rank. The device may not have come past the last of them: those count in the next step.
void Trainer::add_offload_times(StepRecord& record) {
  if (device_.is_cpu() || !sharded_.options().offload.is_any()) return;
  const auto& now = sharded_.counters();
  record.offload =
      OffloadTimes{.update_wait_s = now.update_wait_s - offload_counted_.update_wait_s,
                   .fetch_wait_s = now.fetch_wait_s - offload_counted_.fetch_wait_s,
                   .copy_in_wait_s = now.copy_in_wait_s - offload_counted_.copy_in_wait_s,
                   .copy_out_wait_s = now.copy_out_wait_s - offload_counted_.copy_out_wait_s};
  offload_counted_ = {now.update_wait_s, now.fetch_wait_s, now.copy_in_wait_s, now.copy_out_wait_s};
}

// An accelerator would have to be waited for before the update, to know the loss; and where the
// norm is no business of all ranks a message of its own is less than one to all of them.
// docs/training.md, "Messages of a step".
bool Trainer::totals_ride() const {
  return device_.is_cpu() && sharded_.mesh().num_replicas() == 1;
}

// The loss, the tokens, whether this rank was told to end or to save, and what it has held so far
// where that is recorded.
std::vector<double> Trainer::own_totals_of(int64_t step, double loss, int64_t tokens) const {
  const bool is_logged = step % options_.log_every == 0;
  const bool ends = is_interrupted_ && is_interrupted_();
  const auto bytes = [&](int64_t peak) { return static_cast<double>(is_logged ? peak : 0); };
  return {loss,
          static_cast<double>(tokens),
          ends ? 1.0 : 0.0,
          requested_ ? 1.0 : 0.0,
          bytes(train::peak_resident_bytes()),
          bytes(memory::device_memory(device_).peak_bytes)};
}

void Trainer::add_totals(StepRecord& record, const train::StepTotals& totals) {
  const Communicator& everyone = sharded_.mesh().everyone();
  const bool is_logged = record.step % options_.log_every == 0;
  if (totals.sum(3) > 0)
    requested_ = engine::gather_texts(everyone, requested_.value_or(""), "save")[0];
  record.loss = totals.sum(0) / everyone.size();
  record.tokens = static_cast<int64_t>(totals.sum(1));
  was_interrupted_ = totals.sum(2) > 0 && record.step < options_.steps;  // else it is done
  if (!is_logged) return;
  record.host_peak_bytes = static_cast<int64_t>(totals.largest(4));
  record.device_peak_bytes = static_cast<int64_t>(totals.largest(5));
}

// What rode with a norm was known before the update. The next step's tells what the update took;
// after the last one nobody would.
void Trainer::add_last_peaks(StepRecord& record) const {
  if (record.step < options_.steps && !was_interrupted_) return;
  const train::StepTotals peaks(sharded_.mesh().everyone(),
                                {static_cast<double>(train::peak_resident_bytes()),
                                 static_cast<double>(memory::device_memory(device_).peak_bytes)},
                                "peak memory");
  record.host_peak_bytes = static_cast<int64_t>(peaks.largest(0));
  record.device_peak_bytes = static_cast<int64_t>(peaks.largest(1));
}

void Trainer::evaluate_at(int64_t step, StepRecord& record, const OnBest& on_best) {
  const bool is_last = step + 1 == options_.steps;
  const bool is_due = options_.eval_every > 0 && (step + 1) % options_.eval_every == 0;
  if (evaluation_ == nullptr || was_interrupted_ || !(is_last || is_due)) return;
  clock_.reset();
  const auto result = evaluate(model_, *evaluation_, sharded_.mesh().world(), options_.evaluation);
  last_evaluation_ = result.loss;
  record.eval_loss = result.loss;
  if (num_skipped() == num_steps()) return;  // of the values that the run began with
  const train::EarlyStoppingRule stopping(options_.early_stopping);
  best_evaluation_ = stopping.add(best_evaluation_, step + 1, result.loss);
  if (best_evaluation_->step == step + 1 && on_best) on_best(step + 1, result.loss);
  if (!is_last && stopping.is_due(*best_evaluation_)) {
    stopped_early_ = stopping.reason(*best_evaluation_);
  }
}

int64_t Trainer::resume(const stored::FoundCheckpoint& checkpoint) {
  const Progress progress =
      train::load_training_state(checkpoint, model_, sharded_, *optimizer_, stepper_->scaler(),
                                 train::run_settings_of(plan_).loads_fp32_weights);
  if (options_.adapter) train::check_same_adapter(progress, *options_.adapter, checkpoint.path());
  restore_progress(progress, *stepper_, scheduler_.get());
  best_evaluation_ = progress.best;
  first_step_ = progress.step;
  batches_->seek(first_step_);
  return first_step_;
}

int64_t Trainer::resume(const std::string& path) {
  std::optional<stored::FoundCheckpoint> found;
  engine::throw_alike(
      sharded_.mesh().world().communicator(),
      engine::error_of([&] { found = stored::FoundCheckpoint::find_to_resume(path); }), "resume");
  return resume(*found);
}

void Trainer::save_if_due(int64_t steps_done) {
  saver_.poll();
  note_saved();
  if (requested_) save_as_requested(*requested_, steps_done);
  if (options_.save_every == 0) return;
  const bool is_last = was_interrupted_ || !stopped_early_.empty() || steps_done == options_.steps;
  if (is_last || steps_done % options_.save_every == 0)
    save_as(stored::checkpoint_name(steps_done), steps_done);
}

// What is in the way of a name that a user chose costs that checkpoint and not the run. It is found
// before anything is written, on all ranks alike.
void Trainer::save_as_requested(const std::string& name, int64_t steps_done) {
  try {
    save_as(name, steps_done);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    if (sharded_.mesh().world().rank() == 0) {
      spdlog::warn("checkpoint save '{}': nothing is saved there: {}", base::printable(name),
                   error.what());
    }
  }
}

void Trainer::save_as(const std::string& name, int64_t steps_done) {
  clock_.reset();
  Progress progress = progress_of(*stepper_, scheduler_.get());
  progress.data =
      DataPosition{.step = steps_done, .place = train::data_place(order_, steps_done, mixture_)};
  progress.best = best_evaluation_;
  progress.extra = stored::with_record(
      progress.extra, options_.adapter ? record_of(model_, *options_.adapter) : record_of(model_));
  CheckpointOptions how = options_.checkpoints;
  if (options_.keeps_best && best_evaluation_)
    how.kept_names.push_back(stored::checkpoint_name(best_evaluation_->step));
  if (options_.saves_whole_weights) {
    how.write_beside = [this](const std::string& part) {
      options_.adapter ? write_adapter_files(part, sharded_, *options_.adapter)
                       : write_whole_weights(part, model_, sharded_);
    };
  }
  const std::string folder = options_.checkpoint_folder + "/" + name;
  if (!options_.async_save) {
    save_checkpoint(folder, sharded_, *optimizer_, progress, how);
    last_saved_ = folder;
    return;
  }
  finish_saving();
  saver_.start(folder, sharded_, *optimizer_, progress, how);
  being_saved_ = folder;
}

void Trainer::finish_saving() {
  saver_.finish();
  note_saved();
}

// A save beside training counts when it is complete.
void Trainer::note_saved() {
  if (being_saved_.empty() || saver_.is_saving()) return;
  last_saved_ = std::exchange(being_saved_, "");
}

int64_t Trainer::run(const OnStep& on_step, const OnBest& on_best,
                     const std::function<bool()>& is_interrupted) {
  is_interrupted_ = is_interrupted;
  model_.train();
  const train::EarlyStoppingRule stopping(options_.early_stopping);
  if (best_evaluation_ && stopping.is_due(*best_evaluation_)) {  // of the run that is gone on with
    stopped_early_ = stopping.reason(*best_evaluation_);
    return first_step_;
  }
  for (int64_t step = first_step_; step < options_.steps; ++step) {
    if (options_.before_step) options_.before_step(step + 1);
    StepRecord record = train_step(step);
    if (options_.after_step) options_.after_step();
    evaluate_at(step, record, on_best);
    const bool is_logged = record.step % options_.log_every == 0 || record.eval_loss ||
                           record.step == options_.steps || was_interrupted_;
    if (is_logged && on_step && sharded_.mesh().world().rank() == 0) on_step(record);
    save_if_due(step + 1);
    if (was_interrupted_ || !stopped_early_.empty()) {
      finish_saving();
      return step + 1;
    }
  }
  finish_saving();
  return options_.steps;
}

}  // namespace fullshard
