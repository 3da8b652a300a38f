// SPDX-License-Identifier: Apache-2.0
// One rank of a run whose parameters and states rest on a disk, and which saves a checkpoint after
// every step; in the second step of the run it is killed, or its disk fails, in a given place.
//   offload_rank --disk DIRECTORY --checkpoints DIRECTORY [--steps N] [--streams]
//                [--fault KIND --at PLACE --rank R]
// KIND: kill (there and then), kill-read, kill-write (when the disk is asked next), eio-read,
// eio-write (what the disk says from then on). It begins with the last checkpoint that is there.
// Rank 0 prints "digest <hash of the final parameters' bits>".
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/adamw.h"
#include "tests/offload_options.h"
#include "tests/tiers/fake_disk.h"
#include "tests/training/tiny_training.h"

namespace {

using namespace fullshard;
using namespace fullshard::testing;

struct Arguments {
  std::string disk;
  std::string checkpoints;
  int steps = 4;
  bool streams = false;
  std::string fault;
  std::string at;
  int rank = 1;
};

class DiskFault {
 public:
  DiskFault(const Arguments& arguments, const World& world)
      : arguments_(arguments), world_(world) {}

  void reach(const std::string& place, int step) {
    if (step != 1 || place != arguments_.at || world_.rank() != arguments_.rank) return;
    if (arguments_.fault == "kill") kill(getpid(), SIGKILL);
    is_armed_ = true;
  }
  // Of the disk's thread.
  int64_t answer(const disk::Transfer& transfer) const {
    const bool is_meant = arguments_.fault.ends_with(transfer.is_write ? "-write" : "-read");
    if (!is_armed_ || !is_meant) return kCarryOut;
    if (arguments_.fault.starts_with("kill")) kill(getpid(), SIGKILL);
    return -EIO;
  }

 private:
  const Arguments& arguments_;
  const World& world_;
  std::atomic<bool> is_armed_{false};
};

ShardOptions options_of(const Arguments& arguments, const DiskFault& fault) {
  ShardOptions options;
  options.offload = residences(arguments.disk).at("parameters and states on disk");
  options.offload.streams_on_cpu = arguments.streams;
  options.offload.make_transfers = [&fault](int) {
    return std::make_unique<FakeDisk>(
        [&fault](const disk::Transfer& transfer) { return fault.answer(transfer); });
  };
  return options;
}

uint64_t digest_of(torch::nn::Module& module) {
  uint64_t digest = 0;
  for (const auto& parameter : module.parameters()) {
    const auto bits = parameter.detach().contiguous().view(at::kInt);
    for (const int value : std::span(bits.const_data_ptr<int>(), bits.numel())) {
      digest = digest * 1'000'003 + static_cast<uint32_t>(value);
    }
  }
  return digest;
}

void train(const Arguments& arguments) {
  const auto world = World::from_environment({});
  DiskFault fault(arguments, world);
  const TrainingOptions training{.steps = arguments.steps};
  auto model = make_model(training);
  auto sharded = shard(model, world, options_of(arguments, fault));
  AdamW optimizer(sharded, {.lr = 1e-2, .weight_decay = 0.1});
  int64_t first = 0;
  if (const auto last = stored::last_checkpoint(arguments.checkpoints); !last.folder.empty()) {
    load_checkpoint(last.folder, sharded, optimizer);
    first = last.step;
  }
  for (int step = static_cast<int>(first); step < arguments.steps; ++step) {
    fault.reach("forward", step);
    auto loss = model(make_batch(training, step, 0, world.rank()));
    loss.register_hook([&](const at::Tensor&) { fault.reach("backward", step); });
    loss.backward();
    fault.reach("clip", step);
    sharded.clip_grad_norm(training.clip);
    fault.reach("step", step);
    optimizer.step();
    optimizer.zero_grad();
    fault.reach("save", step);
    save_checkpoint(arguments.checkpoints + "/" + stored::checkpoint_name(step + 1), sharded,
                    optimizer, {.step = step + 1});
  }
  auto full = sharded.gather_full();
  if (world.rank() == 0) fmt::print("digest {:016x}\n", digest_of(*model));
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("one rank of a test");
  app.add_option("--disk", arguments.disk)->required();
  app.add_option("--checkpoints", arguments.checkpoints)->required();
  app.add_option("--steps", arguments.steps);
  app.add_flag("--streams", arguments.streams);
  app.add_option("--fault", arguments.fault);
  app.add_option("--at", arguments.at);
  app.add_option("--rank", arguments.rank);
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
