// SPDX-License-Identifier: Apache-2.0
// Two ranks, as threads, that save a checkpoint and are killed while they save the next one.
//   checkpoint_rank DIRECTORY PERCENT [DIRECTORY PERCENT …]
// Each pair is a process: it saves step 1, then step 2, and is killed by SIGKILL when this much of
// the time that a save takes has passed. Every element of the weights is the number of the step.
// Three run at a time, all forked from one that has libtorch loaded and no threads yet. Exit status
// 0: all were killed.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/adamw.h"
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
  save_checkpoint(directory + "/" + stored::checkpoint_name(step), sharded, optimizer,
                  {.step = step});
}

[[noreturn]] void save_and_be_killed(const std::string& directory, double percent) {
  run_ranks({.ranks = 2}, [&](const World& world) {
    Wide model(600);  // each thread draws other values
    auto sharded = shard(model, world, {.sync_module_states = true});
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
  std::abort();  // not reached
}

bool next_was_killed() {
  int status = 0;
  return ::wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc % 2 == 0) return 2;
  constexpr int kAtOnce = 3;
  bool all_were_killed = true;
  int running = 0;
  for (int i = 1; i < argc; i += 2) {
    if (running == kAtOnce) {
      all_were_killed = next_was_killed() && all_were_killed;
      --running;
    }
    const pid_t child = ::fork();
    if (child == 0) save_and_be_killed(argv[i], std::atof(argv[i + 1]));
    if (child < 0) return 1;
    ++running;
  }
  for (; running > 0; --running) all_were_killed = next_was_killed() && all_were_killed;
  return all_were_killed ? 0 : 1;
}
