// SPDX-License-Identifier: Apache-2.0
// What the recorder sees of a model's step, beside a real run and beside numbers worked out by
// hand.
#include "fullshard/simulation/simulate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/new_values.h"
#include "fullshard/models/model_folder.h"
#include "fullshard/nn/deferred.h"
#include "fullshard/planning/planned_run.h"
#include "fullshard/simulation/simulation_text.h"
#include "fullshard/tensor/pretence.h"
#include "fullshard/train/apply_plan.h"
#include "tests/errors.h"

namespace fullshard::simulation {
namespace {

// Autograd counts devices once, at the first backward of the process.
[[maybe_unused]] const bool hides_gpus = (tensor::pretend_gpus(tensor::RealGpus::hidden), true);

constexpr int64_t kRows = 2, kColumns = 64;
constexpr int64_t kLayers = 3, kWidth = 96, kHeads = 3, kInner = 256, kVocabulary = 320;

std::shared_ptr<LanguageModel> small_model() {
  const DeferredScope scope;
  return make_model(preset_config("llama-tiny"), "test", {});
}

struct Chosen {
  int ranks = 2;
  std::string strategy = "FULL_SHARD";
  bool recompute = false;
  int accumulate = 1;
  std::string offload{};
  std::string precision = "bf16";
};

Plan small_plan(const Chosen& chosen, const std::string& device = "cuda") {
  PlanOptions options{.flags = {{"--strategy", chosen.strategy},
                                {"--micro-batch", fmt::format("{}", kRows)},
                                {"--accumulate", fmt::format("{}", chosen.accumulate)},
                                {"--precision", chosen.precision}},
                      .ranks = chosen.ranks,
                      .device = device};
  if (chosen.recompute) options.flags.push_back({"--recompute", "true"});
  if (!chosen.offload.empty()) options.flags.push_back({"--offload", chosen.offload});
  return Plan::from_words("", "", options);
}

SimulateOptions small_options(const Chosen& chosen) {
  return {.cluster = Cluster::load("h100"), .ranks = chosen.ranks, .sequence_length = kColumns};
}

RecordedRun recorded(const Chosen& chosen) {
  return record_run(small_model(), small_plan(chosen), small_options(chosen));
}

Simulation simulated(const Chosen& chosen, const Cluster& cluster = Cluster::load("h100")) {
  auto options = small_options(chosen);
  options.cluster = cluster;
  return simulate(small_model(), small_plan(chosen), options);
}

std::vector<ScheduledTask> last_step(const RecordedSchedule& schedule) {
  return {schedule.tasks.begin() + static_cast<std::ptrdiff_t>(schedule.last_step),
          schedule.tasks.end()};
}

double flops_of(const RecordedSchedule& schedule, tensor::OperatorKind kind) {
  double sum = 0;
  for (const ScheduledTask& task : last_step(schedule)) {
    if (task.kind == TaskKind::kernel && task.op.kind == kind) sum += task.op.flops;
  }
  return sum;
}

// Weights that products use; the tied head is one of them, the look-up in it is none.
constexpr int64_t kBlockWeights = 4 * kWidth * kWidth + 3 * kWidth * kInner;
constexpr int64_t kHeadWeights = kVocabulary * kWidth;

TEST(Schedule, HasTheProductsOfAStep) {
  const double tokens = kRows * kColumns;
  EXPECT_EQ(flops_of(recorded({}).schedule, tensor::OperatorKind::product),
            6 * tokens * (kLayers * kBlockWeights + kHeadWeights));
  // The last product of a block that is computed again is left out: nobody reads its result.
  EXPECT_EQ(
      flops_of(recorded({.recompute = true}).schedule, tensor::OperatorKind::product),
      tokens * (kLayers * (8.0 * kBlockWeights - 2.0 * kWidth * kInner) + 6.0 * kHeadWeights));
}

// All of a block but one: forward of the layer behind the gate, which reads bf16.
TEST(Schedule, HasTheProductsOfFp8) {
  double rounded = 0, wide = 0;
  for (const ScheduledTask& task : last_step(recorded({.precision = "fp8"}).schedule)) {
    if (task.kind != TaskKind::kernel || task.op.kind != tensor::OperatorKind::product) continue;
    (at::isFloat8Type(task.op.dtype) ? rounded : wide) += task.op.flops;
  }
  const double tokens = kRows * kColumns;
  const double down = 2 * tokens * kLayers * kWidth * kInner;
  EXPECT_EQ(rounded, 6 * tokens * kLayers * kBlockWeights - down);
  EXPECT_EQ(wide, 6 * tokens * kHeadWeights + down);
}

TEST(Schedule, HasTheAttentionOfAStep) {
  // Two products forward, five backward, each over half of all pairs.
  const double product = 2.0 * kRows * kColumns * kColumns * kWidth / 2;
  EXPECT_EQ(flops_of(recorded({}).schedule, tensor::OperatorKind::attention),
            kLayers * 7 * product);
  EXPECT_EQ(flops_of(recorded({.recompute = true}).schedule, tensor::OperatorKind::attention),
            kLayers * 9 * product);
}

TEST(Schedule, TwiceTheMicroBatchesIsTwiceTheProducts) {
  EXPECT_EQ(flops_of(recorded({.accumulate = 2}).schedule, tensor::OperatorKind::product),
            2 * flops_of(recorded({}).schedule, tensor::OperatorKind::product));
}

// Operation, label and bytes, in the order of issue.
using Calls = std::vector<std::string>;

std::string call_text(Operation operation, const std::string& label, int64_t bytes) {
  return fmt::format("{} of {}: {}", name_of(operation), label, bytes);
}

bool is_of_unit(const std::string& label) { return label.starts_with("unit"); }

Calls simulated_calls(const Chosen& chosen) {
  Calls calls;
  for (const ScheduledTask& task : last_step(recorded(chosen).schedule)) {
    if (task.kind != TaskKind::collective || !is_of_unit(task.call.label)) continue;
    calls.push_back(call_text(task.call.operation, task.call.label, task.call.bytes));
  }
  return calls;
}

// Three steps on threads that gather as GPUs do, each its own copy; the calls of the last.
Calls calls_of_rank(const Chosen& chosen, const World& world) {
  const auto plan = small_plan(chosen, "cpu");
  const auto model = small_model();
  ShardOptions options = shard_options_of(plan);
  options.advises_on_units = false;
  options.sync_module_states = false;
  options.share_host_copy = false;
  options.schedule.forward_prefetch = true;
  options.schedule.backward_prefetch = BackwardPrefetch::pre;
  ShardedModel sharded(model, world, options);
  engine::replace_values(engine::EngineAccess::of(sharded), "test", [] {});
  const auto optimizer = make_optimizer(sharded, plan);
  Stepper stepper(sharded, *optimizer, stepper_options_of(plan, world.size()));
  model->train();
  const EstimateOptions workload{.ranks = world.size(), .sequence_length = kColumns};
  double began = 0;
  for (int step = 0; step < 3; ++step) {
    began = world.communicator().recorder().now();
    stepper.backward(model->forward(planning::planned_inputs(*model, kRows, workload)).loss);
    stepper.step();
  }
  Calls calls;
  for (const Record& record : world.communicator().recorder().records()) {
    if (record.issued < began || !is_of_unit(record.unit)) continue;
    calls.push_back(call_text(record.operation, record.unit, record.bytes));
  }
  return calls;
}

Calls real_calls(const Chosen& chosen) {
  Calls calls;
  std::mutex mutex;
  run_ranks({.ranks = chosen.ranks}, [&](const World& world) {
    auto own = calls_of_rank(chosen, world);
    const std::lock_guard lock(mutex);
    calls = std::move(own);
  });
  return calls;
}

TEST(Schedule, HasTheCollectivesOfARealRun) {
  for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP"}) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, recompute {}", strategy, recompute));
      const Chosen chosen{.strategy = strategy, .recompute = recompute};
      const auto real = real_calls(chosen);
      EXPECT_FALSE(real.empty());
      EXPECT_EQ(simulated_calls(chosen), real);
    }
  }
}

TEST(Schedule, WaitsOnceForEveryCollective) {
  std::map<int64_t, int> waits;
  for (const ScheduledTask& task : last_step(recorded({}).schedule)) {
    if (task.kind == TaskKind::collective) waits.try_emplace(task.number, 0);
    if (task.kind == TaskKind::wait && waits.contains(task.number)) ++waits[task.number];
  }
  EXPECT_FALSE(waits.empty());
  for (const auto& [number, count] : waits) EXPECT_LE(count, 1) << number;
}

TEST(Schedule, PutsOffloadedStatesOnStreamsOfTheirOwn) {
  int64_t copied_in = 0, copied_out = 0;
  for (const ScheduledTask& task : last_step(recorded({.offload = "optimizer"}).schedule)) {
    if (task.kind != TaskKind::kernel) continue;
    if (task.op.kind == tensor::OperatorKind::to_device && task.stream != 0) {
      copied_in += task.op.bytes;
    }
    if (task.op.kind == tensor::OperatorKind::to_host && task.stream != 0) {
      copied_out += task.op.bytes;
    }
  }
  // Two moments and what a master has beside its bf16 half, of one of two shards, there and back;
  // with them goes a table of the pieces.
  constexpr int64_t kAll = kLayers * (kBlockWeights + 2 * kWidth) + kHeadWeights + kWidth;
  EXPECT_EQ(copied_out, kAll / 2 * (4 + 4 + 2));
  EXPECT_GE(copied_in, copied_out);
  EXPECT_LT(copied_in, copied_out + 10'000);
}

// What a run does at its end, such as waiting for updates that nobody computes with, is no part of
// a step.
TEST(Schedule, EndsWithItsLastStep) {
  ScheduleRecorder recorder;
  for (const char* name : {"first", "second", "third"}) {
    recorder.ran({.name = name}, 0);
    recorder.marked(1, 2);
    recorder.end_step();
  }
  recorder.held(1, 0);
  const auto schedule = recorder.take();
  ASSERT_EQ(schedule.tasks.size(), 4u);
  EXPECT_EQ(schedule.tasks[0].op.name, "second");
  EXPECT_EQ(schedule.last_step, 2u);
  EXPECT_EQ(schedule.tasks[2].op.name, "third");
  EXPECT_EQ(schedule.tasks[3].kind, TaskKind::mark);
}

TEST(Simulate, IsNeverSlowerWithMore) {
  const Chosen chosen{.ranks = 16};
  const auto step = [&](const std::string& key, const std::string& value) {
    Cluster cluster = Cluster::load("h100");
    cluster.override_value(key, value, "--" + key);
    return simulated(chosen, cluster).step_seconds;
  };
  const auto falls = [&](const std::string& key, const std::vector<std::string>& values) {
    for (size_t i = 1; i < values.size(); ++i) {
      EXPECT_LE(step(key, values[i]), step(key, values[i - 1])) << key << " " << values[i];
    }
    EXPECT_LT(step(key, values.back()), step(key, values.front())) << key;
  };
  falls("between", {"1Gb/s", "10Gb/s", "100Gb/s", "1000Gb/s"});
  falls("inside", {"1GB/s", "10GB/s", "100GB/s"});
  falls("between.latency", {"1ms", "100us", "10us", "0us"});
  falls("gpu.bf16_tflops", {"1", "10", "100"});
  falls("gpu.memory_bandwidth", {"10GB/s", "100GB/s", "1TB/s"});
  falls("gpu.spread", {"0.1", "0.02", "0"});
}

TEST(Simulate, HoldsWhatAnEstimateHolds) {
  const Chosen chosen{.ranks = 8};
  const auto simulation = simulated(chosen);
  const auto plan =
      estimate(small_model(), small_plan(chosen),
               {.ranks = 8, .device = at::Device(at::kCUDA, 0), .sequence_length = kColumns});
  EXPECT_EQ(simulation.memory.on(tiers::Tier::device).peak_bytes,
            plan.on(tiers::Tier::device).peak_bytes);
}

TEST(Simulate, HasTheKeysThatArePromised) {
  const auto cluster = Cluster::load("h100");
  const auto one = simulated({.ranks = 8}, cluster);
  const auto json = nlohmann::json::parse(simulation_json({one}, cluster));
  EXPECT_EQ(json["ranks"], 8);
  EXPECT_EQ(json["step_s"], one.step_seconds);
  EXPECT_DOUBLE_EQ(json["tokens_per_s_per_gpu"], kRows * kColumns / one.step_seconds);
  EXPECT_DOUBLE_EQ(json["tokens_per_s"], 8 * kRows * kColumns / one.step_seconds);
  EXPECT_EQ(json["exposed_communication_s"], one.timeline.exposed_communication);
  EXPECT_EQ(json["device_peak_bytes"], one.memory.on(tiers::Tier::device).peak_bytes);
  EXPECT_EQ(nlohmann::json::parse(simulation_json({one, one}, cluster)).size(), 2u);
}

TEST(Simulate, TracesOfAModelDoNotOverlap) {
  const auto trace = nlohmann::json::parse(report::trace_events(
      simulated({.ranks = 16, .offload = "optimizer"}).timeline.spans, "compute"));
  std::map<int, double> ends;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const int track = event["tid"];
    const double begin = event["ts"];
    ends.try_emplace(track, begin);
    EXPECT_GE(begin, ends[track] - 1e-6);
    ends[track] = begin + event["dur"].get<double>();
  }
  EXPECT_GE(ends.size(), 4u);  // compute, two groups, copies
}

TEST(Simulate, TakesThousandsOfRanksInSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_GT(simulated({.ranks = 4096}).step_seconds, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Simulate, RefusesRanksThatDoNotFillHosts) {
  EXPECT_EQ(testing::message_of([] { simulated({.ranks = 12}); }),
            "--ranks: 12 ranks do not fill hosts of 8 GPUs (h100: gpus_per_host); take a multiple, "
            "or at most one host");
}

}  // namespace
}  // namespace fullshard::simulation
