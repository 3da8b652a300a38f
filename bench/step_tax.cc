// SPDX-License-Identifier: Apache-2.0
// What sharding costs and saves in a training step of a Llama-style model on CPU, one thread a
// rank.
//
//   bench_step_tax --mode plain     the module alone, with the same kernels for norm and update
//   bench_step_tax --mode sharded   the engine, on the ranks of the environment (one: backend self)
//   bench_step_tax --mode paired    both in one process, step by step in turn: seconds only
//
// Ranks of a plain run only meet before the first step and share nothing: started with two ranks,
// it is the floor that contention for memory sets. Rank 0 prints one JSON line; bench/step_tax.sh
// runs all lines, and PyTorch's, in turn.
#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bench/llama.h"
#include "bench/memory_probe.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/engine/gradients/grad_norm_kernels.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/kernels/adamw_kernels.h"

namespace fullshard::bench {
namespace {

constexpr double kMaxNorm = 1.0;

struct Arguments {
  std::string model = "llama-110m";
  std::string mode = "sharded";
  std::string strategy = "FULL_SHARD";
  int64_t sequence_length = 128;
  int64_t batch = 1;
  int steps = 8;
  int warm_up = 2;
};

// A way to finish a step once the gradients are there.
class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual void clip_and_step() = 0;
  virtual std::string report() const { return ""; }  // further members of the JSON object
};

class PlainTrainer : public Trainer {
 public:
  PlainTrainer(torch::nn::Module& module, const AdamWOptions& options)
      : parameters_(module.parameters()), options_(options) {
    for (const auto& parameter : parameters_) {
      moments_.push_back(at::zeros_like(parameter));
      variances_.push_back(at::zeros_like(parameter));
    }
  }

  void clip_and_step() override {
    double squares = 0;
    for (const auto& parameter : parameters_) {
      const auto& gradient = parameter.grad();
      squares += engine::sum_of_squares(gradient.const_data_ptr<float>(), gradient.numel());
    }
    const auto norm = static_cast<float>(std::sqrt(squares));
    const auto constants = constants_of_step(++num_steps_, norm);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      auto& parameter = parameters_[i];
      optim::adamw_step(constants, parameter.data_ptr<float>(),
                        parameter.grad().const_data_ptr<float>(), moments_[i].data_ptr<float>(),
                        variances_[i].data_ptr<float>(), parameter.numel());
      parameter.mutable_grad() = at::Tensor();
    }
  }

 private:
  optim::AdamWStep constants_of_step(int step, float norm) const {
    optim::AdamWStep constants;
    constants.clip = std::min(1.0f, static_cast<float>(kMaxNorm) / (norm + 1e-6f));
    constants.beta1 = options_.beta1;
    constants.beta2 = options_.beta2;
    constants.decay = 1 - options_.lr * options_.weight_decay;
    constants.step_size = options_.lr / (1 - std::pow(options_.beta1, step));
    constants.root_correction = std::sqrt(1 - std::pow(options_.beta2, step));
    constants.epsilon = options_.epsilon;
    return constants;
  }

  std::vector<at::Tensor> parameters_, moments_, variances_;
  AdamWOptions options_;
  int num_steps_ = 0;
};

class ShardedTrainer : public Trainer {
 public:
  ShardedTrainer(const Llama& model, const World& world, const Arguments& arguments,
                 const AdamWOptions& options)
      : sharded_(shard(model, world, options_of(arguments))), optimizer_(sharded_, options) {}

  void clip_and_step() override {
    sharded_.clip_grad_norm(kMaxNorm);
    optimizer_.step();
    optimizer_.zero_grad();
  }

  std::string report() const override {
    const auto& ledger = sharded_.ledger();
    const auto peak = [&](tiers::Purpose purpose) { return ledger.peak(purpose); };
    const double steps = std::max<double>(1, static_cast<double>(sharded_.counters().steps));
    return fmt::format(
        R"(, "shares_host_copy": {}, "ledger_peak_bytes": {{"parameters": {}, "gradients": {}, )"
        R"("master": {}, "optimizer": {}, "workspace": {}, "total": {}}}, "wire_bytes_per_step": {:.0f})",
        sharded_.shares_host_copy(), peak(tiers::Purpose::parameters),
        peak(tiers::Purpose::gradients), peak(tiers::Purpose::master),
        peak(tiers::Purpose::optimizer), peak(tiers::Purpose::workspace), ledger.peak_total(),
        static_cast<double>(sharded_.recorder().moved()) / steps);
  }

 private:
  static ShardOptions options_of(const Arguments& arguments) {
    ShardOptions options;
    options.sharding.strategy = parse_strategy(arguments.strategy);
    return options;
  }

  ShardedModel sharded_;
  AdamW optimizer_;
};

struct Measurement {
  std::vector<double> seconds;
  std::vector<double> cpu_seconds;  // of all threads: tells waiting from work on a busy machine
  double first_loss = 0, last_loss = 0;
  // Proportional bytes, and what torch's allocator held at most in one step.
  int64_t at_start = 0, after_forward = 0, after_backward = 0, peak = 0, tensors = 0;
};

double loss_of_step(Llama& model, const at::Tensor& tokens) {
  const auto length = tokens.size(1) - 1;
  const auto loss = model(tokens.narrow(1, 0, length), tokens.narrow(1, 1, length));
  loss.backward();
  return loss.item<double>();
}

double cpu_now() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Measurement measure(Llama& model, Trainer& trainer, const std::vector<at::Tensor>& batches,
                    const Arguments& arguments) {
  Measurement result;
  for (int step = 0; step < arguments.warm_up + arguments.steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    const double cpu_start = cpu_now();
    result.last_loss = loss_of_step(model, batches[step % batches.size()]);
    trainer.clip_and_step();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (step == 0) result.first_loss = result.last_loss;
    if (step < arguments.warm_up) continue;
    result.seconds.push_back(taken.count());
    result.cpu_seconds.push_back(cpu_now() - cpu_start);
  }
  return result;
}

// One more step, not timed.
void measure_memory(Llama& model, Trainer& trainer, const at::Tensor& tokens, Measurement& result) {
  const auto length = tokens.size(1) - 1;
  const auto meter = std::make_shared<TensorMeter>();
  const c10::DebugInfoGuard metered(c10::DebugInfoKind::PROFILER_STATE, meter);
  PeakSampler sampler;
  auto loss = model(tokens.narrow(1, 0, length), tokens.narrow(1, 1, length));
  result.after_forward = proportional_bytes();
  loss.backward();
  result.after_backward = proportional_bytes();
  trainer.clip_and_step();
  result.peak = sampler.stop();
  result.tensors = meter->peak();
}

// What the program and its libraries take: a small model has made them load what they need.
int64_t bytes_of_the_program(const World& world) {
  Llama small(LlamaConfig{1, 64, 2, 128, 512});
  initialise(*small);
  PlainTrainer trainer(*small, {});
  loss_of_step(small, random_batches(512, 1, 32, world.rank())[0]);
  trainer.clip_and_step();
  world.communicator().barrier();
  return proportional_bytes();
}

// One value per rank, on every rank.
std::vector<double> of_all_ranks(const World& world, double value) {
  const auto own = at::tensor({value}, at::kDouble);
  const auto all = at::zeros({world.size()}, at::kDouble);
  world.communicator().all_gather(all, own).wait();
  const double* values = all.const_data_ptr<double>();
  return {values, values + world.size()};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void print(const World& world, const Arguments& arguments, const Measurement& result,
           const std::string& more) {
  const auto steps = of_all_ranks(world, median(result.seconds));
  const auto cpu = of_all_ranks(world, median(result.cpu_seconds));
  const auto start = of_all_ranks(world, static_cast<double>(result.at_start));
  const auto tensors = of_all_ranks(world, static_cast<double>(result.tensors));
  const auto forward = of_all_ranks(world, static_cast<double>(result.after_forward));
  const auto backward = of_all_ranks(world, static_cast<double>(result.after_backward));
  const auto peak = of_all_ranks(world, static_cast<double>(result.peak));
  const auto resident = of_all_ranks(world, static_cast<double>(peak_resident_bytes()));
  if (world.rank() != 0) return;
  fmt::print(
      R"({{"model": "{}", "mode": "{}", "strategy": "{}", "world": {}, "backend": "{}", "seq": {}, )"
      R"("batch": {}, "step_s": [{:.5f}], "cpu_s": [{:.5f}], "first_loss": {:.5f}, "loss": {:.5f}, )"
      R"("pss_at_start": [{:.0f}], "tensors_peak": [{:.0f}], )"
      R"("pss_after_forward": [{:.0f}], "pss_after_backward": [{:.0f}], "pss_peak": [{:.0f}], )"
      R"("rss_peak": [{:.0f}]{}}})"
      "\n",
      arguments.model, arguments.mode, arguments.strategy, world.size(), world.backend(),
      arguments.sequence_length, arguments.batch, fmt::join(steps, ", "), fmt::join(cpu, ", "),
      result.first_loss, result.last_loss, fmt::join(start, ", "), fmt::join(tensors, ", "),
      fmt::join(forward, ", "), fmt::join(backward, ", "), fmt::join(peak, ", "),
      fmt::join(resident, ", "), more);
}

// A model with its own way to step.
struct Side {
  Llama model;
  std::unique_ptr<Trainer> trainer;
  std::vector<double> seconds = {};      // the slowest rank's
  std::vector<double> cpu_seconds = {};  // of all ranks together
  std::vector<double> faults = {};       // page faults of this rank
};

int64_t num_page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void timed_step(Side& side, const World& world, const at::Tensor& tokens) {
  world.communicator().barrier();
  const int64_t faults = num_page_faults();
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_now();
  loss_of_step(side.model, tokens);
  side.trainer->clip_and_step();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const auto cpu = of_all_ranks(world, cpu_now() - cpu_start);
  side.cpu_seconds.push_back(std::accumulate(cpu.begin(), cpu.end(), 0.0));
  side.faults.push_back(static_cast<double>(num_page_faults() - faults));
  const auto of_ranks = of_all_ranks(world, taken.count());
  side.seconds.push_back(*std::max_element(of_ranks.begin(), of_ranks.end()));
}

std::vector<double> timed_ones(const std::vector<double>& values, const Arguments& arguments) {
  return {values.begin() + arguments.warm_up, values.end()};
}

// The machine's slow seconds hit both sides of a pair; each side begins every second pair.
void run_paired(const Arguments& arguments, const World& world) {
  const auto config = LlamaConfig::named(arguments.model);
  const auto batches =
      random_batches(config.vocabulary, arguments.batch, arguments.sequence_length, world.rank());
  const AdamWOptions options{.lr = 1e-4};
  Side plain{Llama(config), nullptr}, sharded{Llama(config), nullptr};
  for (auto* side : {&plain, &sharded}) initialise(*side->model);
  plain.trainer = std::make_unique<PlainTrainer>(*plain.model, options);
  sharded.trainer = std::make_unique<ShardedTrainer>(sharded.model, world, arguments, options);
  for (int step = 0; step < arguments.warm_up + arguments.steps; ++step) {
    const auto& tokens = batches[step % batches.size()];
    timed_step(step % 2 == 0 ? plain : sharded, world, tokens);
    timed_step(step % 2 == 0 ? sharded : plain, world, tokens);
  }
  if (world.rank() != 0) return;
  fmt::print(
      R"({{"model": "{}", "mode": "paired", "world": {}, "plain_s": [{:.5f}], "sharded_s": [{:.5f}], )"
      R"("plain_cpu_s": [{:.5f}], "sharded_cpu_s": [{:.5f}], "plain_faults": {:.0f}, "sharded_faults": {:.0f}}})"
      "\n",
      arguments.model, world.size(), fmt::join(timed_ones(plain.seconds, arguments), ", "),
      fmt::join(timed_ones(sharded.seconds, arguments), ", "),
      fmt::join(timed_ones(plain.cpu_seconds, arguments), ", "),
      fmt::join(timed_ones(sharded.cpu_seconds, arguments), ", "),
      median(timed_ones(plain.faults, arguments)), median(timed_ones(sharded.faults, arguments)));
}

void run(const Arguments& arguments) {
  at::set_num_threads(1);
  const auto world = World::from_environment();
  if (arguments.mode == "paired") return run_paired(arguments, world);
  const int64_t at_start = bytes_of_the_program(world);
  const auto config = LlamaConfig::named(arguments.model);
  Llama model(config);
  initialise(*model);
  const auto batches =
      random_batches(config.vocabulary, arguments.batch, arguments.sequence_length, world.rank());
  const AdamWOptions options{.lr = 1e-4};
  std::unique_ptr<Trainer> trainer;
  if (arguments.mode == "plain") {
    trainer = std::make_unique<PlainTrainer>(*model, options);
  } else {
    trainer = std::make_unique<ShardedTrainer>(model, world, arguments, options);
  }
  world.communicator().barrier();
  auto result = measure(model, *trainer, batches, arguments);
  measure_memory(model, *trainer, batches[0], result);
  result.at_start = at_start;
  print(world, arguments, result, trainer->report());
}

}  // namespace
}  // namespace fullshard::bench

int main(int argc, char** argv) {
  fullshard::bench::Arguments arguments;
  CLI::App app("Time and memory of training steps, with and without the engine");
  app.add_option("--model", arguments.model, "llama-15m or llama-110m")->capture_default_str();
  app.add_option("--mode", arguments.mode)->check(CLI::IsMember({"plain", "sharded", "paired"}));
  app.add_option("--strategy", arguments.strategy)->capture_default_str();
  app.add_option("--sequence-length", arguments.sequence_length)->capture_default_str();
  app.add_option("--batch", arguments.batch)->capture_default_str();
  app.add_option("--steps", arguments.steps, "timed ones")->capture_default_str();
  app.add_option("--warm-up", arguments.warm_up, "steps before them")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    fullshard::bench::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: bench_step_tax: %s\n", error.what());
    return 1;
  }
}
