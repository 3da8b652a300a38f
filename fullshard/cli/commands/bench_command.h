// SPDX-License-Identifier: Apache-2.0
// fullshard bench disk DIR, bench bus and bench kernels: what this machine's disk, memory, bus and
// GPU can do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
  RunArguments& kernels() { return kernels_; }
  // Copies to and from a device need fullshard-core, which measures them and then prints all.
  bool needs_core() const;
  int run() const;  // gives the exit status
  int print_bus(const std::optional<tiers::BusSpeed>& bus) const;
  int64_t bus_bytes() const;
  int rounds() const { return quick_ ? 2 : 5; }

 private:
  int run_disk() const;

  CLI::App* command_;
  CLI::App* disk_;
  CLI::App* bus_;
  RunArguments kernels_;
  std::string folder_;
  uint64_t size_ = 0;  // 0: by --quick
  bool quick_ = false;
  bool json_ = false;
};

// Tables and JSON, apart from measuring: for tests.
std::string disk_row(const tiers::DiskSpeed& speed);
std::string disk_json(const tiers::DiskBench& bench, const tiers::DiskSweep& sweep);
std::string bus_text(const tiers::HostMemorySpeed& memory,
                     const std::optional<tiers::BusSpeed>& bus, bool is_cuda_build);
std::string bus_json(const tiers::HostMemorySpeed& memory,
                     const std::optional<tiers::BusSpeed>& bus);

}  // namespace fullshard::cli
