// SPDX-License-Identifier: Apache-2.0
// The training loop: data, steps, evaluation and what is kept of them. Plain: what a user's own
// loop would look like, with the accounts that a run keeps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "fullshard/checkpoint/async_saver.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/config/plan.h"
#include "fullshard/config/run_options.h"
#include "fullshard/data/dataset.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/models/lora/adapter_config.h"
#include "fullshard/optim/lr_scheduler.h"
#include "fullshard/optim/stepper.h"
#include "fullshard/report/records/step_record.h"
#include "fullshard/stored/found_checkpoint.h"
#include "fullshard/train/evaluate.h"
#include "fullshard/train/run/early_stopping.h"
#include "fullshard/train/run/micro_batch_pass.h"
#include "fullshard/train/run/run_trace.h"
#include "fullshard/train/run/step_batches.h"
#include "fullshard/train/run/step_clock.h"
#include "fullshard/train/run/step_totals.h"

namespace fullshard {

struct TrainerOptions {
  int64_t steps = 1;
  int64_t global_batch = 8;
  int64_t micro_batch = 0;  // of one rank; 0: what the others leave to it
  int64_t accumulation = 1;
  bool reduces_once = false;  // as StepperOptions says
  Order order = Order::shuffled;
  LastBatch last_batch = LastBatch::dropped;  // of an epoch, where it is not full
  ExamplePlace data_start = {};               // of a resumed run: where its data had come to
  uint64_t seed = 42;
  double label_smoothing = 0;
  int64_t log_every = 1;
  int64_t eval_every = 0;              // 0: at the end only
  std::string checkpoint_folder = {};  // where checkpoints go
  int64_t save_every = 0;              // steps; 0: none
  bool async_save = false;             // written while training goes on
  CheckpointOptions checkpoints = {};
  bool saves_whole_weights = false;  // in checkpoints, for other programs: FULL_STATE_DICT
  // Of a model with adapters: checkpoints say so, and other programs get its files.
  std::optional<AdapterConfig> adapter = {};
  bool keeps_best = false;       // the checkpoint of the best evaluation, whatever goes otherwise
  bool records_phases = false;   // wall_clock_breakdown
  int64_t profiled_step = 0;     // whose phases are recorded in any case; 0: none
  bool graphs = true;            // CUDA graphs where they help: micro_batch_pass.h
  bool traces = false;           // keeps the timeline of the last steps
  double peak_matmul_flops = 0;  // operations per second of all ranks; 0: MFU is not known
  EvaluateOptions evaluation = {};
  train::EarlyStoppingOptions early_stopping = {};
  // On every rank, around a step; the latter before the step is told of.
  std::function<void(int64_t step)> before_step = {};
  std::function<void()> after_step = {};
};

// Called on rank 0 only, in the order of steps.
using OnStep = std::function<void(const StepRecord& record)>;
// Called on every rank after an evaluation that was better than all before.
using OnBest = std::function<void(int64_t step, double loss)>;

class Trainer {
 public:
  // All of these outlive it; `evaluation` may be null.
  Trainer(LanguageModel& model, ShardedModel sharded, const Plan& plan, const Dataset& data,
          const Dataset* evaluation, const TrainerOptions& options);
  ~Trainer();

  // Collective, before run(): goes on where the checkpoint was saved, to the bit when as many ranks
  // with the same strategy saved it. The model may have no values yet. Gives the steps done.
  int64_t resume(const stored::FoundCheckpoint& checkpoint);
  int64_t resume(const std::string& path);  // of what every rank finds there

  // Collective. Runs to the end, or until `is_interrupted` says so on any rank, at the end of a
  // step, which is then saved before anything else: no evaluation delays it. Gives the number of
  // steps done.
  int64_t run(const OnStep& on_step, const OnBest& on_best,
              const std::function<bool()>& is_interrupted);

  bool was_interrupted() const { return was_interrupted_; }
  // Why run() ended before its last step, when the evaluation loss no longer fell; else empty.
  const std::string& stopped_early() const { return stopped_early_; }
  // The last checkpoint that run() wrote; empty: none.
  const std::string& last_saved() const { return last_saved_; }
  // Steps that were made, and of them those skipped for gradients that were not finite; of the
  // whole run where it was resumed.
  int64_t num_steps() const { return stepper_->num_steps(); }
  int64_t num_skipped() const { return stepper_->num_skipped(); }
  std::optional<double> last_evaluation() const { return last_evaluation_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  // Of this rank, where the options say so.
  std::vector<report::TraceSpan> trace() const { return trace_.spans(sharded_.recorder()); }
  // What profiled_step took, once it is over.
  const std::optional<StepRecord>& profiled() const { return profiled_; }
  std::vector<std::string> warnings() const { return scheduler_->warnings(); }  // of the schedule
  bool has_best() const { return best_evaluation_.has_value(); }  // of this run, or the resumed one
  // What was saved of the best evaluation is not there: the next one is the best so far. On all
  // ranks alike, before run().
  void forget_best() { best_evaluation_.reset(); }

 private:
  StepRecord train_step(int64_t step);
  // The forward and backward of a micro-batch, whose weighed loss it gives.
  at::Tensor run_pass(const ModelInputs& inputs, double weight, train::StepClock& clock);
  // A breakdown by phase waits for the accelerator at each mark.
  void mark(train::StepClock& clock, double PhaseTimes::*phase) const;
  // The mean over the labels of the step is the average over ranks and micro-batches of the weighed
  // means.
  std::vector<double> weights_of(const std::vector<train::StepBatch>& batches) const;
  // Whether the totals of a step travel with its gradient norm.
  bool totals_ride() const;
  void add_offload_times(StepRecord& record);
  std::vector<double> own_totals_of(int64_t step, double loss, int64_t tokens) const;
  void add_totals(StepRecord& record, const train::StepTotals& totals);
  void add_last_peaks(StepRecord& record) const;
  // Also when the run was interrupted: what was done is not lost.
  void save_if_due(int64_t steps_done);
  void save_as(const std::string& name, int64_t steps_done);
  void save_as_requested(const std::string& name, int64_t steps_done);
  void note_saved();
  void finish_saving();
  void evaluate_at(int64_t step, StepRecord& record, const OnBest& on_best);

  LanguageModel& model_;
  ShardedModel sharded_;
  const Plan& plan_;
  at::Device device_;
  const Dataset* evaluation_;
  TrainerOptions options_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LrScheduler> scheduler_;
  std::unique_ptr<Stepper> stepper_;
  ExampleOrder order_;
  std::string mixture_;  // of the data, for checkpoints
  std::unique_ptr<train::StepBatches> batches_;
  std::unique_ptr<train::MicroBatchPass> pass_;
  train::RunTrace trace_;
  std::optional<train::StepClock> clock_;  // of the step that is next or under way
  OffloadTimes offload_counted_;           // so far
  std::function<bool()> is_interrupted_;
  std::optional<StepRecord> profiled_;
  bool waits_at_marks_ = false;  // in this step
  bool was_interrupted_ = false;
  std::string stopped_early_;
  int64_t first_step_ = 0;
  AsyncSaver saver_;
  std::optional<std::string> requested_;  // a checkpoint under this name, after the step
  std::string last_saved_, being_saved_;
  std::optional<double> last_evaluation_;
  std::optional<BestEvaluation> best_evaluation_;
};

}  // namespace fullshard
