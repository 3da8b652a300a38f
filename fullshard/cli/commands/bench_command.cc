// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/bench_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/cli/flags/cuda_build.h"
#include "fullshard/config/document/document.h"
#include "fullshard/launch/devices.h"

namespace fullshard::cli {
namespace {

constexpr double kGigabyte = 1e9;  // as data sheets count
constexpr uint64_t kLargestFile = std::numeric_limits<int64_t>::max() / 4;
constexpr uint64_t kLargestCopy = uint64_t{1} << 36;

std::string disk_heading() {
  return fmt::format("{:>10} {:>5} {:>7} {:>6} {:>7} {:>9} {:>9}\n", "block_size", "depth",
                     "threads", "single", "overlap", "read GB/s", "write");
}

std::string speed_fields(const tiers::DiskSpeed& speed) {
  return fmt::format(R"("read_gb_per_s": {:.3f}, "write_gb_per_s": {:.3f}, "is_direct": {})",
                     speed.read_bytes_per_second / kGigabyte,
                     speed.write_bytes_per_second / kGigabyte, speed.is_direct);
}

// Only the settings of {"aio": {…}}.
std::string aio_object(const tiers::DiskSettings& settings) {
  const std::string whole = tiers::aio_json(settings);
  const size_t begin = whole.find('{', 1);
  return whole.substr(begin, whole.size() - begin - 1);
}

}  // namespace

BenchCommand::BenchCommand(CLI::App& app)
    : command_(app.add_subcommand("bench", "this machine's speed, compared with its limits")),
      disk_(command_->add_subcommand("disk", "find the best aio settings of a disk")),
      bus_(
          command_->add_subcommand("bus", "copies between host memory and a GPU, and host memory")),
      comm_(*command_),
      optimizer_(*command_),
      step_(*command_, RunKind::step),
      kernels_(*command_, RunKind::kernels) {
  command_->require_subcommand(1, 1);
  disk_->add_option("DIR", folder_, "a folder on the disk; nothing is left in it")->required();
  disk_->footer(
      "Writes and reads a file of --size for every setting that is tried, past the page "
      "cache.");
  for (CLI::App* command : {disk_, bus_}) {
    const bool is_disk = command == disk_;
    auto* size = command->add_option(
        "--size", size_,
        is_disk ? "size of the file: 4GiB, 512MiB; default: 1GiB, with --quick 256MiB"
                : "size of each copy; default: 256MiB");
    take_size(*size, is_disk ? kLargestFile : kLargestCopy);
    command->add_flag("--quick", quick_, "measure less: rougher figures");
    command->add_flag("--json", json_, "machine-readable standard output");
  }
}

bool BenchCommand::was_chosen() const { return command_->parsed(); }
bool BenchCommand::is_bus() const { return bus_->parsed(); }
bool BenchCommand::needs_core() const {
  if (kernels_.was_chosen() || optimizer_.was_chosen() || step_.was_chosen()) return true;
  return is_bus() && is_cuda_build() && launch::num_visible_gpus() > 0;
}

int BenchCommand::run() const { return is_bus() ? print_bus(std::nullopt) : run_disk(); }

int64_t BenchCommand::bus_bytes() const {
  return size_ == 0 ? 256 * kMiB : static_cast<int64_t>(size_);
}

int BenchCommand::run_disk() const {
  const int64_t fallback = quick_ ? 256 * kMiB : kGiB;
  const tiers::DiskBench bench{.folder = folder_,
                               .bytes = size_ == 0 ? fallback : static_cast<int64_t>(size_),
                               .is_quick = quick_};
  // Printed with the first row: for a folder that cannot be measured only the error is printed.
  std::string heading = disk_heading();
  const tiers::DiskSweep sweep = tiers::best_disk_settings(
      quick_,
      [&](const tiers::DiskSettings& settings) { return tiers::measure_disk(bench, settings); },
      [&](const tiers::DiskSpeed& speed) {
        if (!json_) fmt::print("{}{}", std::exchange(heading, ""), disk_row(speed));
        std::fflush(stdout);
      });
  const tiers::DiskSpeed& best = sweep.tried[sweep.best];
  for (const std::string& warning : tiers::slow_disk_warnings(folder_, best)) {
    base::say(fmt::format("warning: {}\n", warning));
  }
  if (json_) {
    fmt::print("{}", disk_json(bench, sweep));
  } else {
    fmt::print("best, for a DeepSpeed configuration:\n{}\n", tiers::aio_json(best.settings));
  }
  return 0;
}

int BenchCommand::print_bus(const std::optional<tiers::BusSpeed>& bus) const {
  const int num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int64_t bytes = std::max<int64_t>(4 * bus_bytes(), 24 * num_threads);
  const tiers::HostMemorySpeed memory = tiers::measure_host_memory(num_threads, bytes, rounds());
  fmt::print("{}", json_ ? bus_json(memory, bus) : bus_text(memory, bus, is_cuda_build()));
  return 0;
}

std::string disk_row(const tiers::DiskSpeed& speed) {
  const tiers::DiskSettings& settings = speed.settings;
  return fmt::format("{:>10} {:>5} {:>7} {:>6} {:>7} {:>9.2f} {:>9.2f}\n", settings.block_size,
                     settings.queue_depth, settings.num_threads, settings.single_submit,
                     settings.overlap_events, speed.read_bytes_per_second / kGigabyte,
                     speed.write_bytes_per_second / kGigabyte);
}

std::string disk_json(const tiers::DiskBench& bench, const tiers::DiskSweep& sweep) {
  std::string rows, warnings;
  for (const tiers::DiskSpeed& speed : sweep.tried) {
    rows += fmt::format("{}  {{\"aio\": {}, {}}}", rows.empty() ? "\n" : ",\n",
                        aio_object(speed.settings), speed_fields(speed));
  }
  const tiers::DiskSpeed& best = sweep.tried[sweep.best];
  for (const std::string& warning : tiers::slow_disk_warnings(bench.folder, best)) {
    warnings += fmt::format("{}{}", warnings.empty() ? "" : ", ", config::quote_json(warning));
  }
  return fmt::format(
      "{{\"folder\": {}, \"bytes\": {}, \"aio\": {}, {}, \"warnings\": [{}], \"tried\": [{}\n]}}\n",
      config::quote_json(bench.folder), bench.bytes, aio_object(best.settings), speed_fields(best),
      warnings, rows);
}

std::string bus_text(const tiers::HostMemorySpeed& memory,
                     const std::optional<tiers::BusSpeed>& bus, bool is_cuda_build) {
  std::string text;
  if (bus) {
    text = fmt::format(
        "{}, page-locked memory\n  to the device   {:>7.1f} GB/s\n  to the host     {:>7.1f} GB/s\n"
        "  both at once    {:>7.1f} GB/s\n",
        bus->device, bus->to_device / kGigabyte, bus->to_host / kGigabyte, bus->both / kGigabyte);
  } else {
    text = is_cuda_build ? "no GPU is visible: host memory only\n"
                         : "this build has no CUDA: host memory only\n";
  }
  return text + fmt::format("host memory, {} threads\n  triad           {:>7.1f} GB/s\n",
                            memory.num_threads, memory.bytes_per_second / kGigabyte);
}

std::string bus_json(const tiers::HostMemorySpeed& memory,
                     const std::optional<tiers::BusSpeed>& bus) {
  const std::string device =
      bus ? fmt::format(
                R"({{"name": {}, "to_device_gb_per_s": {:.2f}, "to_host_gb_per_s": {:.2f}, )"
                R"("both_gb_per_s": {:.2f}}})",
                config::quote_json(bus->device), bus->to_device / kGigabyte,
                bus->to_host / kGigabyte, bus->both / kGigabyte)
          : "null";
  return fmt::format(
      "{{\"device\": {}, \"host\": {{\"threads\": {}, \"triad_gb_per_s\": {:.2f}}}}}\n", device,
      memory.num_threads, memory.bytes_per_second / kGigabyte);
}

}  // namespace fullshard::cli
