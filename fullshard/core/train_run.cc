#include "fullshard/core/train_run.h"

#include <ATen/Context.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/config/batch_sizes.h"
#include "fullshard/core/rank_model.h"
#include "fullshard/optim/precision.h"
#include "fullshard/shard/agreement.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/interruption.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/new_head.h"
#include "fullshard/train/product_roof.h"
#include "fullshard/train/run_account.h"
#include "fullshard/train/run_data.h"
#include "fullshard/train/trainer.h"

namespace fullshard {
namespace {

constexpr int kInterrupted = 130;

int64_t steps_of(const RunOptions& options, int64_t num_examples, int64_t global_batch) {
  if (options.steps > 0) return options.steps;
  const ExampleOrder order(num_examples, global_batch, Order::sequential, 0);
  const double epochs = options.epochs > 0 ? options.epochs : 1;
  return static_cast<int64_t>(std::ceil(epochs * static_cast<double>(order.batches_per_epoch())));
}

BatchSizes batch_of(const Plan& plan, int ranks) {
  BatchSizeOptions sizes{plan.batch.global.value, plan.batch.micro.value,
                         plan.batch.accumulation.value};
  if (!sizes.train_batch_size && !sizes.train_micro_batch_size_per_gpu) {
    sizes.train_micro_batch_size_per_gpu = AutoInputs{}.per_device_train_batch_size;
  }
  return derive_batch_sizes(sizes, ranks);
}

double roof_of_all(const World& world, const Plan& plan) {
  const auto roofs = world.communicator().allocate(1, at::kDouble);
  const auto dtype = precision_of(plan).compute.value_or(at::kFloat);
  roofs.fill_(measure_product_roof(dtype, world.device()));
  world.communicator().all_reduce(roofs, ReduceOp::sum, "product roof").wait();
  return roofs.item<double>();
}

at::ScalarType saved_dtype(const Plan& plan) {
  const bool wants_16_bit = plan.checkpoint.gather_16bit_weights.value;
  return wants_16_bit ? precision_of(plan).compute.value_or(at::kFloat) : at::kFloat;
}

// DeepSpeed's stage 3 with the key set to false writes no whole model: its checkpoint holds it.
bool withholds_model(const Plan& plan) {
  const auto& gathers = plan.checkpoint.gather_16bit_weights;
  return plan.sharding.stage.value == 3 && gathers.origin.is_explicit() && !gathers.value;
}

TrainerOptions trainer_options(const RunOptions& options, const Plan& plan, const BatchSizes& batch,
                               int64_t steps) {
  return {.steps = steps,
          .global_batch = batch.global_batch,
          .micro_batch = batch.micro_batch,
          .accumulation = batch.accumulation,
          .order = options.order == "sequential" ? Order::sequential : Order::shuffled,
          .seed = options.seed,
          .label_smoothing = options.label_smoothing,
          .log_every = options.log_every,
          .eval_every = options.eval_every,
          .checkpoint_folder = options.output + "/checkpoints",
          .save_every = options.save_every,
          .saves_aside = options.saves_aside,
          .checkpoints = {.is_node_local = plan.checkpoint.node_local.value,
                          .num_kept = static_cast<int>(options.keep)},
          .keeps_best = options.keep_best || options.restore_best,
          .records_phases = plan.logging.wall_clock_breakdown.value,
          .evaluation = {.micro_batch = batch.micro_batch,
                         .max_batches = options.eval_batches,
                         .seed = options.seed,
                         .dtype = evaluation_dtype(options)}};
}

std::string model_type_of(const LanguageModel& model) {
  return model.is_encoder_decoder() ? "t5" : "";
}

// One command's parts, in the order in which they are made.
class TrainRun {
 public:
  TrainRun(const RunArguments& arguments, const std::vector<std::string>& command)
      : options_(arguments.options()),
        command_(command),
        run_(options_, /*is_trained=*/true),
        world_(meet_ranks(arguments)),
        plan_(arguments.plan(world_.size(), run_.auto_inputs(), world_.rank() != 0)),
        batch_(batch_of(plan_, world_.size())) {
    choose_checkpoint();
  }

  int run() {
    const bool is_first = world_.rank() == 0;
    throw_alike(world_.communicator(),
                is_first ? error_of([&] { prepare_output_folder(options_, !resumed_.empty()); })
                         : std::nullopt,
                "output");
    const RunData data = open_data_in_turn();
    const int64_t steps = steps_of(options_, data.train->size(), batch_.global_batch);
    at::manual_seed(options_.seed + static_cast<uint64_t>(world_.rank()));
    ShardedModel sharded = run_.shard(world_, plan_, options_, resumed_.empty());
    TrainerOptions options = trainer_options(options_, plan_, batch_, steps);
    options.product_roof = roof_of_all(world_, plan_);
    if (withholds_model(plan_) && options.save_every == 0) options.save_every = steps;
    Trainer trainer(*run_.model, sharded, plan_, *data.train, data.evaluation.get(), options);
    const int64_t first_step = resumed_.empty() ? 0 : trainer.resume(resumed_);
    RunAccount account(options_, command_, plan_, *run_.model, sharded, steps, first_step);
    if (!resumed_.empty())
      account.say(fmt::format("resumed after step {}: {}", first_step, resumed_));
    warn_of_precision(account);
    if (resumed_.empty() && !run_.drawn.empty() && !options_.new_head) {
      account.warn(new_head_warning(run_.source, run_.drawn));
    }
    try {
      return train(data, sharded, trainer, account);
    } catch (const std::exception& error) {
      account.finish(RunStatus::failed, error.what(), {});
      throw;
    }
  }

 private:
  // Where to go on, if anywhere. A group that was started again goes on by itself.
  void choose_checkpoint() {
    const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
    const bool is_restart = restarts != nullptr && std::atoi(restarts) > 0;
    if (options_.resume == "none" && !(is_restart && options_.save_every > 0)) return;
    if (options_.resume != "none" && options_.resume != "auto") {
      resumed_ = options_.resume;
      return;
    }
    const LastCheckpoint last = last_checkpoint(options_.output + "/checkpoints");
    if (world_.rank() == 0) {
      for (const std::string& reason : last.skipped) {
        fmt::print(stderr, "warning: checkpoint skipped: {}\n", reason);
      }
      if (last.folder.empty()) fmt::print(stderr, "note: no checkpoint to resume; starting anew\n");
    }
    resumed_ = last.folder;
  }

  // Rank 0 first: what it had to tokenise is in the run's folder then, and the others map it.
  RunData open_data_in_turn() {
    RunOptions options = options_;
    options.cache_folder = options_.output + "/cache";
    std::optional<RunData> data;
    const auto open = [&] { data = open_run_data(options, run_.source.folder, *run_.model); };
    const bool is_first = world_.rank() == 0;
    throw_alike(world_.communicator(), is_first ? error_of(open) : std::nullopt, "data");
    throw_alike(world_.communicator(), is_first ? std::nullopt : error_of(open), "data");
    return std::move(*data);
  }

  void warn_of_precision(RunAccount& account) const {
    const std::string dtype = run_.source.dtype();
    for (const std::string& warning : precision_warnings(
             precision_of(plan_), dtype.empty() ? std::nullopt : std::optional(dtype),
             model_type_of(*run_.model))) {
      account.warn(warning);
    }
  }

  int train(const RunData& data, ShardedModel& sharded, Trainer& trainer, RunAccount& account) {
    const SaveModelOptions saving{.dtype = saved_dtype(plan_), .tokenizer = data.tokenizer_path};
    const auto keep_best = [&](int64_t step, double loss) {
      save_model_folder(options_.output + "/best", *run_.model, sharded, saving);
      account.say(fmt::format("step {}: evaluation loss {:.4f}, kept as best", step, loss));
    };
    const Interruption interruption;
    trainer.run([&](const StepRecord& record) { account.add(record); },
                options_.keep_best || options_.restore_best ? OnBest(keep_best) : OnBest(),
                [&] { return interruption.is_asked_for(); });
    account.take_memory(sharded);
    std::vector<std::pair<std::string, std::string>> places = {
        {"report", options_.output + "/report.html"}};
    if (options_.restore_best && is_folder(options_.output + "/best")) {
      load_model_weights(options_.output + "/best", *run_.model, sharded);
    }
    if (withholds_model(plan_)) {
      account.say(fmt::format(
          "no model/, because stage3_gather_16bit_weights_on_model_save is false; to get one: "
          "fullshard checkpoint to-fp32 {}/checkpoints OUT",
          options_.output));
    } else if (options_.save_model && !trainer.was_interrupted()) {
      save_model_folder(options_.output + "/model", *run_.model, sharded, saving);
      places.emplace_back("model", options_.output + "/model");
    }
    account.finish(trainer.was_interrupted() ? RunStatus::interrupted : RunStatus::finished, "",
                   places);
    return trainer.was_interrupted() ? kInterrupted : 0;
  }

  const RunOptions& options_;
  const std::vector<std::string>& command_;
  RankModel run_;
  World world_;
  Plan plan_;
  BatchSizes batch_;
  std::string resumed_;  // the checkpoint that is gone on from; empty: none
};

}  // namespace

int run_train(const RunArguments& arguments, const std::vector<std::string>& command) {
  return TrainRun(arguments, command).run();
}

}  // namespace fullshard
