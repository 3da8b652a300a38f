// SPDX-License-Identifier: Apache-2.0
#include "fullshard/planning/planned_run.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/world/fake_world.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/new_values.h"
#include "fullshard/planning/memory_meter.h"
#include "fullshard/tensor/pretence.h"
#include "fullshard/train/apply_plan.h"

namespace fullshard::planning {
namespace {

constexpr int kGpusPerHost = 8;

ShardOptions planned_options(const Plan& plan) {
  ShardOptions options = shard_options_of(plan);
  options.advises_on_units = false;
  options.sync_module_states = false;
  options.watch_non_finite = false;
  // There is no bus to measure.
  auto& stepping = options.offload.stepping;
  if (stepping == tiers::Stepping::automatic) stepping = tiers::Stepping::device;
  return options;
}

void add_library_workspaces(TierEstimate& device) {
  constexpr int64_t kWorkspaces = kLibraryWorkspaces + kGraphWorkspaces;
  device.rest_bytes += kWorkspaces;
  device.peak_bytes += kWorkspaces;
  device.by_purpose[static_cast<size_t>(tiers::Purpose::workspace)] += kWorkspaces;
}

}  // namespace

World planned_world(const EstimateOptions& options) {
  const bool on_cpu = options.device.is_cpu();
  const int usual = on_cpu ? options.ranks : std::min(options.ranks, kGpusPerHost);
  return comm::fake_world(
      {.size = options.ranks,
       .ranks_per_host = options.ranks_per_host > 0 ? options.ranks_per_host : usual,
       .device = options.device,
       .share_memory = on_cpu});
}

Estimate run_plan(const std::shared_ptr<torch::nn::Module>& model, const World& world,
                  const PlannedRun& run, const std::function<void()>& after_step) {
  const auto meter = std::make_shared<MemoryMeter>(world.device());
  const tensor::WatchScope watched(meter);
  ShardedModel sharded(model, world, planned_options(run.plan));
  meter->explain_by(sharded.ledger());
  engine::replace_values(engine::EngineAccess::of(sharded), "plan", [] {});

  const auto optimizer = make_optimizer(sharded, run.plan);
  StepperOptions how = stepper_options_of(run.plan, world.size());
  how.reduces_once = run.options.reduce_once;
  how.accumulation_steps = std::min(how.accumulation_steps, run.most_micro_batches);
  Stepper stepper(sharded, *optimizer, how);
  model->train();
  for (int step = 0; step < run.num_steps; ++step) {
    for (int part = 0; part < how.accumulation_steps; ++part) {
      meter->begin("forward");
      stepper.backward(run.micro_batch());
    }
    meter->begin("optimizer's step");
    stepper.step();
    if (run.settles) sharded.settle();
    meter->note_rest();
    if (after_step) after_step();
  }
  sharded.settle();
  Estimate result = meter->estimate();
  if (!world.device().is_cpu()) add_library_workspaces(result.on(tiers::Tier::device));
  result.ranks = world.size();
  result.device = world.device();
  result.num_parameters = sharded.numel();
  return result;
}

constexpr double kMaskedShare = 0.15;  // of words, as BERT was trained

ModelInputs planned_inputs(const LanguageModel& model, int64_t rows,
                           const EstimateOptions& options) {
  const auto integers = at::TensorOptions().dtype(at::kLong).device(options.device);
  const int64_t most = model.max_positions();
  const int64_t columns =
      most > 0 ? std::min(options.sequence_length, most) : options.sequence_length;
  ModelInputs inputs;
  inputs.label_smoothing = options.label_smoothing;
  // Rows are full: rows with padding compute less, and a mask that hides nothing is left out.
  inputs.input_ids = at::zeros({rows, columns}, integers);
  const bool is_causal = !model.is_encoder_decoder() && !model.is_masked();
  const int64_t targets =
      model.is_encoder_decoder() && options.target_length > 0 ? options.target_length : columns;
  const bool classifies = !model.class_names().empty();
  inputs.labels = at::zeros({rows, classifies ? 1 : targets}, integers);
  inputs.labels_are_next = is_causal;
  if (model.is_masked()) {
    inputs.num_labels = static_cast<int64_t>(kMaskedShare * static_cast<double>(rows * targets));
  }
  return inputs;
}

}  // namespace fullshard::planning

namespace fullshard {

Estimate estimate(const std::shared_ptr<torch::nn::Module>& model, const Plan& plan,
                  const EstimateOptions& options,
                  const std::function<at::Tensor(at::Device)>& loss) {
  check(options.ranks > 0, "estimate: {} ranks, expected at least one", options.ranks);
  if (!options.device.is_cpu()) tensor::pretend_gpus();
  const tensor::PretenceScope pretence;
  const auto world = planning::planned_world(options);
  return planning::run_plan(model, world, {plan, options, [&] { return loss(world.device()); }});
}

Estimate estimate(const std::shared_ptr<LanguageModel>& model, const Plan& plan,
                  const EstimateOptions& options) {
  const auto batch = plan.batch_sizes(options.ranks);
  auto result =
      estimate(std::static_pointer_cast<torch::nn::Module>(model), plan, options, [&](at::Device) {
        return model->forward(planning::planned_inputs(*model, batch.micro_batch, options)).loss;
      });
  const int64_t columns = options.sequence_length;
  result.num_tokens = batch.micro_batch * batch.accumulation * columns;
  return result;
}

}  // namespace fullshard
