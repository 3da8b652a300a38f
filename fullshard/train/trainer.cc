#include "fullshard/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "fullshard/base/error.h"
#include "fullshard/checkpoint/save_request.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/memory/host_number.h"
#include "fullshard/shard/agreement.h"
#include "fullshard/stored/model_record.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/loss_weight.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/peak_memory.h"
#include "fullshard/train/resume.h"
#include "fullshard/train/run_settings.h"
#include "fullshard/train/step_totals.h"

namespace fullshard {
namespace {

// Every token of every rank has a label: nothing needs to be counted across ranks.
bool counts_are_equal(const std::vector<StepBatch>& batches) {
  return std::all_of(batches.begin(), batches.end(),
                     [](const StepBatch& batch) { return batch.labels_all_tokens; });
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
      data_(data),
      device_(sharded_.mesh().world().device()),
      evaluation_(evaluation),
      options_(checked(options, sharded_.mesh().world().size())),
      optimizer_(make_optimizer(sharded_, plan)),
      scheduler_(std::make_unique<LrScheduler>(make_schedule(plan, options.steps), *optimizer_)) {
  StepperOptions stepper = stepper_options_of(plan, sharded_.mesh().world().size());
  stepper.accumulation_steps = static_cast<int>(options.accumulation);
  stepper.reduces_once = options.reduces_once;
  stepper_ = std::make_unique<Stepper>(sharded_, *optimizer_, stepper, scheduler_.get());
  const World& world = sharded_.mesh().world();
  const ExampleOrder order(data.size(), options.global_batch, options.order, options.seed);
  auto loader = std::make_unique<Loader>(data, order,
                                         LoaderOptions{.seed = options.seed,
                                                       .num_accumulation = options.accumulation,
                                                       .rank = world.rank(),
                                                       .num_ranks = world.size()});
  batches_ = std::make_unique<StepBatches>(std::move(loader), model, device_, options.accumulation);
}

Trainer::~Trainer() = default;

std::vector<double> Trainer::weights_of(const std::vector<StepBatch>& batches) const {
  const Communicator& everyone = sharded_.mesh().world().communicator();
  if (counts_are_equal(batches)) return std::vector<double>(batches.size(), 1.0);
  std::vector<int64_t> labels;
  for (const StepBatch& batch : batches) labels.push_back(batch.num_labels);
  return loss_weights(everyone, labels);
}

void Trainer::mark(StepClock& clock, double PhaseTimes::*phase) const {
  if (options_.records_phases) {
    synchronise(device_);
    sharded_.recorder().settle();
  }
  clock.mark(phase);
}

// An accelerator is waited for once in a step: for the norm, when the update that follows it has
// been given to it too. What the host does after that, to the first work of the next step, lies
// under the update.
StepRecord Trainer::train_step(int64_t step) {
  if (!clock_) clock_.emplace(sharded_.recorder());
  StepClock& clock = *clock_;
  clock.pass();
  std::vector<StepBatch> batches = batches_->take();
  const std::vector<double> weights = weights_of(batches);
  clock.mark(&PhaseTimes::data_s);

  std::vector<HostNumber> losses;
  double loss = 0;
  int64_t tokens = 0;
  for (size_t part = 0; part < batches.size(); ++part) {
    tokens += batches[part].tokens.num_tokens();
    ModelInputs& inputs = batches[part].inputs;
    inputs.label_smoothing = options_.label_smoothing;
    const at::Tensor mean = model_.forward(inputs).loss;
    mark(clock, &PhaseTimes::forward_s);
    const at::Tensor weighed = weights[part] == 1.0 ? mean : mean * weights[part];
    stepper_->backward(weighed);
    losses.emplace_back(weighed);
    mark(clock, &PhaseTimes::backward_s);
  }
  // A checkpoint under a name: rank 0 looks, all of them save.
  const bool looks = sharded_.mesh().world().rank() == 0;
  requested_ = looks ? take_save_request(options_.checkpoint_folder) : std::nullopt;
  if (step + 1 < options_.steps) batches_->bring_next();
  clock.mark(&PhaseTimes::data_s);
  saver_.settle();
  const StepReport report = stepper_->step();
  for (const HostNumber& weighed : losses) loss += weighed.wait();
  mark(clock, &PhaseTimes::optimizer_s);

  StepRecord record;
  record.step = step + 1;
  record.lr = report.lr;
  if (!std::isnan(report.grad_norm)) record.grad_norm = report.grad_norm;
  record.loss_scale = report.loss_scale;
  record.skipped = report.skipped;
  add_totals(record, loss / static_cast<double>(batches.size()), tokens);
  record.step_s = clock.seconds();
  record.tokens_per_s = static_cast<double>(record.tokens) / record.step_s;
  if (options_.product_roof > 0) {
    const int64_t columns = std::max<int64_t>(batches.front().tokens.columns, 1);
    const double per_token = model_.flops_per_token(columns);
    record.mfu = per_token * record.tokens_per_s / options_.product_roof;
  }
  record.exposed_comm_s = clock.exposed();
  record.comm_s = clock.communicating();
  if (options_.records_phases) record.phases = clock.phases();
  clock_.emplace(sharded_.recorder());  // the device may be computing still: no moment is left out
  return record;
}

// One small message per step: the loss of all ranks, their tokens, whether one of them was told to
// end or to save, and what they hold where that is recorded.
void Trainer::add_totals(StepRecord& record, double own_loss, int64_t own_tokens) {
  const Communicator& everyone = sharded_.mesh().world().communicator();
  const bool is_logged = record.step % options_.log_every == 0;
  const bool ends = is_interrupted_ && is_interrupted_();
  const auto bytes = [&](int64_t peak) { return static_cast<double>(is_logged ? peak : 0); };
  const StepTotals totals(
      everyone,
      {own_loss, static_cast<double>(own_tokens), ends ? 1.0 : 0.0, requested_ ? 1.0 : 0.0,
       bytes(peak_resident_bytes()), bytes(device_memory(device_).peak_bytes)},
      "step totals");
  if (totals.sum(3) > 0) requested_ = gather_texts(everyone, requested_.value_or(""), "save")[0];
  record.loss = totals.sum(0) / everyone.size();
  record.tokens = static_cast<int64_t>(totals.sum(1));
  was_interrupted_ = totals.sum(2) > 0 && record.step < options_.steps;  // else it is done
  if (!is_logged) return;
  record.host_peak_bytes = static_cast<int64_t>(totals.largest(4));
  record.device_peak_bytes = static_cast<int64_t>(totals.largest(5));
}

void Trainer::evaluate_at(int64_t step, StepRecord& record, const OnBest& on_best) {
  const bool is_last = step + 1 == options_.steps;
  const bool is_due = options_.eval_every > 0 && (step + 1) % options_.eval_every == 0;
  if (evaluation_ == nullptr || was_interrupted_ || !(is_last || is_due)) return;
  clock_.reset();
  const auto result = evaluate(model_, *evaluation_, sharded_.mesh().world(), options_.evaluation);
  last_evaluation_ = result.loss;
  record.eval_loss = result.loss;
  if (best_evaluation_ && !(result.loss < best_evaluation_->loss)) return;
  best_evaluation_ = BestEvaluation{.step = step + 1, .loss = result.loss};
  if (on_best) on_best(step + 1, result.loss);
}

int64_t Trainer::resume(const std::string& checkpoint) {
  const Progress progress =
      load_training_state(checkpoint, model_, sharded_, *optimizer_, stepper_->scaler(),
                          run_settings_of(plan_).loads_fp32_weights);
  restore_progress(progress, *stepper_, scheduler_.get());
  best_evaluation_ = progress.best;
  first_step_ = progress.step;
  batches_->seek(first_step_);
  return first_step_;
}

void Trainer::save_if_due(int64_t steps_done) {
  saver_.poll();
  if (requested_) save_as(*requested_, steps_done);
  if (options_.save_every == 0) return;
  const bool is_due =
      steps_done % options_.save_every == 0 || was_interrupted_ || steps_done == options_.steps;
  if (is_due) save_as(checkpoint_name(steps_done), steps_done);
}

void Trainer::save_as(const std::string& name, int64_t steps_done) {
  clock_.reset();
  Progress progress = progress_of(*stepper_, scheduler_.get());
  progress.data = DataPosition{.step = steps_done};
  progress.best = best_evaluation_;
  progress.extra = with_record(progress.extra, record_of(model_));
  CheckpointOptions how = options_.checkpoints;
  if (options_.keeps_best && best_evaluation_)
    how.kept_names.push_back(checkpoint_name(best_evaluation_->step));
  if (options_.saves_whole_weights) {
    how.write_beside = [this](const std::string& part) {
      write_whole_weights(part, model_, sharded_);
    };
  }
  const std::string folder = options_.checkpoint_folder + "/" + name;
  if (options_.saves_aside) {
    saver_.start(folder, sharded_, *optimizer_, progress, how);
  } else {
    save_checkpoint(folder, sharded_, *optimizer_, progress, how);
  }
  last_saved_ = folder;
}

int64_t Trainer::run(const OnStep& on_step, const OnBest& on_best,
                     const std::function<bool()>& is_interrupted) {
  is_interrupted_ = is_interrupted;
  model_.train();
  for (int64_t step = first_step_; step < options_.steps; ++step) {
    StepRecord record = train_step(step);
    evaluate_at(step, record, on_best);
    const bool is_logged = record.step % options_.log_every == 0 || record.eval_loss ||
                           record.step == options_.steps || was_interrupted_;
    if (is_logged && on_step && sharded_.mesh().world().rank() == 0) on_step(record);
    save_if_due(step + 1);
    if (was_interrupted_) {
      saver_.finish();
      return step + 1;
    }
  }
  saver_.finish();
  return options_.steps;
}

}  // namespace fullshard
