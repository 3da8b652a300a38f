// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/bench/bus_bench.h"

#include "fullshard/memory/measure_bus.h"

namespace fullshard::worker {

int run_bench_bus(const cli::BenchCommand& command) {
  return command.print_bus(memory::measure_bus(command.bus_bytes(), command.rounds()));
}

}  // namespace fullshard::worker
