// SPDX-License-Identifier: Apache-2.0
// fullshard bench: this machine's speed, each figure with its limit. Disk and host memory are
// measured here, the rest by fullshard-core.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/cli/flags/bench_arguments.h"
#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/tiers/bus_speed.h"
#include "fullshard/tiers/disk_speed.h"
#include "fullshard/tiers/host_memory_speed.h"

namespace CLI {
class App;
}

namespace fullshard::cli {

class BenchCommand {
 public:
  explicit BenchCommand(CLI::App& app);
  BenchCommand(const BenchCommand&) = delete;  // the parser writes into it
  BenchCommand& operator=(const BenchCommand&) = delete;

  bool was_chosen() const;
  bool is_bus() const;
  CommBenchArguments& comm() { return comm_; }
  const OptimizerBenchArguments& optimizer() const { return optimizer_; }
  RunArguments& step() { return step_; }
  RunArguments& kernels() { return kernels_; }
  // Whether fullshard-core measures and prints everything, in one process.
  bool needs_core() const;
  int run() const;  // returns the exit status
  int print_bus(const std::optional<tiers::BusSpeed>& bus) const;
  int64_t bus_bytes() const;
  int rounds() const { return quick_ ? 2 : 5; }

 private:
  int run_disk() const;

  CLI::App* command_;
  CLI::App* disk_;
  CLI::App* bus_;
  CommBenchArguments comm_;
  OptimizerBenchArguments optimizer_;
  RunArguments step_;
  RunArguments kernels_;
  std::string folder_;
  uint64_t size_ = 0;  // 0: by --quick
  bool quick_ = false;
  bool json_ = false;
};

// Tables and JSON, separate from measuring, for tests.
std::string disk_row(const tiers::DiskSpeed& speed);
std::string disk_json(const tiers::DiskBench& bench, const tiers::DiskSweep& sweep);
std::string bus_text(const tiers::HostMemorySpeed& memory,
                     const std::optional<tiers::BusSpeed>& bus, bool is_cuda_build);
std::string bus_json(const tiers::HostMemorySpeed& memory,
                     const std::optional<tiers::BusSpeed>& bus);

}  // namespace fullshard::cli
