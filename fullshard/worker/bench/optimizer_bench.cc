// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/bench/optimizer_bench.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/config/plan.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/nn/unit.h"
#include "fullshard/report/records/number_text.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/worker/bench/free_memory.h"
#include "fullshard/worker/bench/timing.h"

namespace fullshard::worker {
namespace {

constexpr int64_t kTensors = 16;
constexpr int64_t kCopied = int64_t{1} << 28, kQuickCopied = kCopied / 4;
constexpr double kPerBillion = 1e9, kGigabytes = 1e9;

// Parameters and nothing else; their gradients are ones.
struct WeightsImpl : Unit {
  WeightsImpl(int64_t numel, at::Device device) {
    const int64_t each = (numel + kTensors - 1) / kTensors;
    for (int64_t left = numel; left > 0; left -= each) {
      const auto values = at::full({std::min(left, each)}, 0.5, at::TensorOptions().device(device));
      weights.push_back(register_parameter(fmt::format("weight{}", weights.size()), values));
    }
  }
  at::Tensor forward(at::Tensor factor) {
    auto sum = factor * 0;
    for (const auto& weight : weights) sum = sum + weight.sum();
    return sum;
  }
  std::vector<at::Tensor> weights;
};
FULLSHARD_UNIT(Weights);

struct OptimizerLine {
  std::string name;
  double bytes = 0;  // that any such update must read and write per parameter
  std::function<void()> run;
  std::vector<double> seconds = {};
};

// Master and states are read and written, the gradient is read: all of them in fp32, of which
// 16-bit values are a half.
double bytes_of_update(const Optimizer& optimizer) {
  return 12 + 8 * static_cast<double>(optimizer.state_names().size());
}

class OptimizerBench {
 public:
  explicit OptimizerBench(const cli::OptimizerBenchArguments& arguments)
      : options_(arguments.options()),
        device_(arguments.device() == "cuda" ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU)),
        numel_(arguments.num_parameters()),
        plan_(Plan::parse("{}", "bench optimizer",
                          {.flags = {{"--optimizer", options_.optimizer},
                                     {"--precision", options_.precision},
                                     {"--strategy", "NO_SHARD"}},
                           .ranks = 1,
                           .device = arguments.device()})),
        model_(numel_that_fits(), device_),
        sharded_(shard(model_, World::single(device_), plan_)),
        optimizer_(make_optimizer(sharded_, plan_)) {}

  void run() {
    const int rounds = options_.quick ? 3 : 9;
    std::vector<OptimizerLine> lines = {
        {"update", bytes_of_update(*optimizer_), [this] { optimizer_->step(); }},
        {"norm, clip, update", bytes_of_update(*optimizer_) + 4, [this] {
           optimizer_->clip_without_waiting(1.0);
           optimizer_->step();
         }}};
    for (int i = -1; i < rounds; ++i) {  // one round to warm up; each goes through all lines
      for (auto& line : lines) {
        make_gradients();
        const double taken = seconds_of(line.run, device_);
        if (i >= 0) line.seconds.push_back(taken);
      }
    }
    const double copy = copy_bandwidth(num_copied(), rounds, device_);
    fmt::print("{}", options_.json ? json(lines, copy) : text(lines, copy));
    base::flush_standard_output();
  }

 private:
  // Makes the gradients of one step; each call adds to the earlier ones, in the same memory.
  void make_gradients() {
    const auto dtype = options_.precision == "bf16"   ? at::kBFloat16
                       : options_.precision == "fp16" ? at::kHalf
                                                      : at::kFloat;
    model_(at::full({}, 1, at::TensorOptions().dtype(dtype).device(device_))).backward();
    memory::synchronise(device_);
  }

  int64_t num_copied() const { return options_.quick ? kQuickCopied : kCopied; }

  // Checked before any of them is made. An optimizer of a few parameters tells the number of
  // states.
  int64_t numel_that_fits() const {
    Weights few(kTensors, device_);
    const ShardedModel sharded = shard(few, World::single(device_), plan_);
    const auto states = static_cast<int64_t>(make_optimizer(sharded, plan_)->state_names().size());
    constexpr int64_t kWide = 4, kSixteenBit = 2;  // master, gradient and states are wide
    const int64_t each = kWide * (2 + states) + (options_.precision == "no" ? 0 : kSixteenBit);
    check_free(fmt::format("bench optimizer: {} parameters", format_count(numel_)),
               each * numel_ + 2 * num_copied(), device_, "give fewer --parameters");
    return numel_;
  }

  double rate(const OptimizerLine& line) const {
    return line.bytes * static_cast<double>(numel_) / median(line.seconds);
  }
  double per_billion(const OptimizerLine& line) const {
    return median(line.seconds) / static_cast<double>(numel_) * kPerBillion;
  }

  std::string text(const std::vector<OptimizerLine>& lines, double copy) const {
    std::string text = fmt::format(
        "{}, {}, {} parameters on {}\ncopy           {:>8.2f} GB/s\n\n{:<20} {:>11} {:>11} {:>9}  "
        "of a "
        "copy\n",
        optimizer_->name(),
        options_.precision == "no" ? "fp32" : options_.precision + " with fp32 masters",
        format_count(numel_), where(), copy / kGigabytes, "", "bytes each", "per 1e9", "GB/s");
    for (const auto& line : lines) {
      text += fmt::format("{:<20} {:>11} {:>11} {:>9.2f}  {:>9.2f}\n", line.name, line.bytes,
                          report::format_seconds(per_billion(line)), rate(line) / kGigabytes,
                          rate(line) / copy);
    }
    return text;
  }

  std::string json(const std::vector<OptimizerLine>& lines, double copy) const {
    auto rows = nlohmann::ordered_json::array();
    for (const auto& line : lines) {
      rows.push_back({{"name", line.name},
                      {"bytes_per_parameter", line.bytes},
                      {"seconds", median(line.seconds)},
                      {"seconds_per_1e9", per_billion(line)},
                      {"gb_per_s", rate(line) / kGigabytes},
                      {"of_copy", rate(line) / copy}});
    }
    const nlohmann::ordered_json result = {
        {"optimizer", optimizer_->name()},
        {"precision", options_.precision},
        {"parameters", numel_},
        {"device", device_.is_cpu() ? "cpu" : "cuda"},
        {"threads", device_.is_cpu() ? at::get_num_threads() : 0},
        {"copy_gb_per_s", copy / kGigabytes},
        {"lines", std::move(rows)}};
    return result.dump() + "\n";
  }

  std::string where() const {
    if (!device_.is_cpu()) return "a GPU";
    const int threads = at::get_num_threads();
    return fmt::format("{} CPU thread{}", threads, threads == 1 ? "" : "s");
  }

  const cli::OptimizerBenchArguments::Options& options_;
  const at::Device device_;
  const int64_t numel_;
  const Plan plan_;
  Weights model_;
  ShardedModel sharded_;
  const std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

int run_bench_optimizer(const cli::OptimizerBenchArguments& arguments) {
  if (arguments.options().threads > 0) at::set_num_threads(arguments.options().threads);
  OptimizerBench(arguments).run();
  return 0;
}

}  // namespace fullshard::worker
