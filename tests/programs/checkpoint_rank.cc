// Two ranks, as threads, that save a checkpoint and are killed while they save the next one.
//   checkpoint_rank DIRECTORY PERCENT
// Saves step 1, then step 2, and is killed by SIGKILL when this much of the time that a save takes
// has passed. Every element of the weights is the number of the step.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <unistd.h>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/shard/sharded_model.h"
#include "tests/checkpoint/wide_model.h"

namespace {

using namespace fullshard;
using fullshard::testing::Wide;
using Clock = std::chrono::steady_clock;

void save_step(int step, const std::string& directory, ShardedModel& sharded,
               const AdamW& optimizer) {
  {
    const at::NoGradGuard no_grad;
    auto full = sharded.gather_full({.write_back = true});
    for (auto& parameter : sharded.module().parameters()) parameter.fill_(step);
  }
  save_checkpoint(directory + "/" + checkpoint_name(step), sharded, optimizer, {.step = step});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string directory = argv[1];
  const double percent = std::atof(argv[2]);
  run_ranks({.ranks = 2}, [&](const World& world) {
    Wide model(600);
    auto sharded = shard(model, world);
    const AdamW optimizer(sharded, {});
    const auto start = Clock::now();
    save_step(1, directory, sharded, optimizer);
    const auto whole = Clock::now() - start;
    world.communicator().barrier("both");
    if (world.rank() == 0) {
      std::thread([=] {
        // Not for ever where a loaded machine made the first save slow.
        const std::chrono::duration<double> most(1);
        std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(
            std::chrono::duration<double>(whole) * (percent / 100), most));
        ::kill(::getpid(), SIGKILL);
      }).detach();
    }
    save_step(2, directory, sharded, optimizer);
    ::pause();
  });
}
