// SPDX-License-Identifier: Apache-2.0
// One rank of a training run, for tests that need processes: trains the tiny transformer and, when
// told to, dies, sleeps, throws or disagrees at a given place.
//   training_rank [--backend B] [--device D] [--stage N | --strategy S] [--steps N] [--timeout-ms
//   N]
//                 [--fault KIND --at PLACE --rank R] [--width N] [--timeline] [--says-steps]
//                 [--precision fp32|bf16|fp8]
// Rank 0 prints "digest <hash of the final parameters' bits>", and with --timeline for each gather
// of the last step "gather <began> <ended> <needed> <unit>", in seconds, as a GPU passed them.
#include <ATen/Context.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <unistd.h>
#include <csignal>
#include <cstdio>

#include "fullshard/base/error.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/adamw.h"
#include "tests/training/tiny_training.h"

namespace {

using namespace fullshard;
using namespace fullshard::testing;

struct Arguments {
  std::string backend = "auto";
  std::string device = "cpu";
  std::optional<int> stage;
  std::string strategy = "FULL_SHARD";
  int steps = 5;
  int timeout_ms = 600'000;
  std::string fault;
  std::string at;
  int rank = 1;
  bool private_copies = false;
  int64_t width = 0;
  bool timeline = false;
  bool says_steps = false;
  std::string precision = "fp32";
};

// The place in the second step where the fault happens.
class Fault {
 public:
  Fault(const Arguments& arguments, const World& world) : arguments_(arguments), world_(world) {}

  void reach(const std::string& place, int step) const {
    if (step != 1 || place != arguments_.at || world_.rank() != arguments_.rank) return;
    if (arguments_.fault == "kill") kill(getpid(), SIGKILL);
    if (arguments_.fault == "exit") _exit(0);
    if (arguments_.fault == "throw") throw std::runtime_error("a fault of the test");
    if (arguments_.fault == "sleep") pause();
    if (arguments_.fault == "disagree") world_.communicator().barrier("a barrier of one rank");
  }

 private:
  const Arguments& arguments_;
  const World& world_;
};

void print_gathers(Recorder& recorder, double since) {
  recorder.settle();
  for (const Record& record : recorder.records()) {
    if (record.operation != Operation::all_gather || record.issued < since) continue;
    fmt::print("gather {:.6f} {:.6f} {:.6f} {}\n", record.began - since, record.ended - since,
               record.needed - since, record.unit);
  }
}

// Attention's backward adds in a fixed order where digests of 16 bits are to be compared.
void set_precision(ShardOptions& options, const std::string& precision) {
  if (precision == "fp32") return;
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  options.param_dtype = at::kBFloat16;
  if (precision == "fp8") options.products = ProductPrecision::fp8;
}

void train(const Arguments& arguments) {
  comm::WorldOptions world_options;
  world_options.backend = arguments.backend;
  world_options.device = arguments.device;
  world_options.timeouts.step = std::chrono::milliseconds(arguments.timeout_ms);
  const auto world = World::from_environment(world_options);
  const Fault fault(arguments, world);

  TrainingOptions training{.steps = arguments.steps};
  if (arguments.width > 0) training.model.width = arguments.width;
  double last_began = 0;
  auto model = make_model(training);
  ShardOptions options;
  options.sharding.zero_stage = arguments.stage;
  options.sharding.strategy = parse_strategy(arguments.strategy);
  options.share_host_copy = !arguments.private_copies;
  set_precision(options, arguments.precision);
  auto sharded = shard(model, world, options);
  AdamW optimizer(sharded, {.lr = 1e-2, .weight_decay = 0.1});
  for (int step = 0; step < arguments.steps; ++step) {
    last_began = world.recorder().now();
    fault.reach("forward", step);
    auto loss = model(make_batch(training, step, 0, world.rank()).to(world.device()));
    loss.register_hook([&](const at::Tensor&) { fault.reach("start of backward", step); });
    fault.reach("backward", step);
    if (arguments.says_steps && world.rank() == 0) {
      fmt::print("backward of step {}\n", step);
      std::fflush(stdout);
    }
    loss.backward();
    fault.reach("clip", step);
    sharded.clip_grad_norm(training.clip);
    fault.reach("step", step);
    optimizer.step();
    optimizer.zero_grad();
    fault.reach("gather", step);
    if (arguments.timeline) loss.item<float>();  // the stream has come to the end of the step
    if (arguments.timeline && step + 1 == arguments.steps && world.rank() == 0) {
      print_gathers(world.recorder(), last_began);
    }
    auto full = sharded.gather_full();
  }
  auto full = sharded.gather_full();
  uint64_t digest = 0;
  for (const auto& parameter : model->parameters()) {
    const auto bits = parameter.detach().cpu().contiguous().view(at::kInt);
    for (const int value : std::span(bits.const_data_ptr<int>(), bits.numel())) {
      digest = digest * 1'000'003 + static_cast<uint32_t>(value);
    }
  }
  if (world.rank() == 0) fmt::print("digest {:016x}\n", digest);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("one rank of a test");
  app.add_option("--backend", arguments.backend);
  app.add_option("--device", arguments.device);
  app.add_option("--stage", arguments.stage);
  app.add_option("--strategy", arguments.strategy);
  app.add_option("--steps", arguments.steps);
  app.add_option("--timeout-ms", arguments.timeout_ms);
  app.add_option("--fault", arguments.fault);
  app.add_option("--at", arguments.at);
  app.add_option("--rank", arguments.rank);
  app.add_flag("--private-copies", arguments.private_copies);
  app.add_option("--width", arguments.width);
  app.add_flag("--timeline", arguments.timeline);
  app.add_flag("--says-steps", arguments.says_steps);
  app.add_option("--precision", arguments.precision)->check(CLI::IsMember({"fp32", "bf16", "fp8"}));
  CLI11_PARSE(app, argc, argv);
  try {
    train(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    std::fflush(stderr);
    return 1;
  }
  return 0;
}
