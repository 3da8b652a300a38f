// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/disk_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/disk/direct_buffer.h"
#include "fullshard/tiers/slot_file.h"

namespace fullshard::tiers {
namespace {

constexpr double kExpectedRead = 3.5e9;
constexpr double kExpectedWrite = 3e9;
constexpr int64_t kBenchWindow = 64 * kMiB;  // as a buffer of the disk tier
constexpr int kBenchWindows = 2;             // under way at a time, as with reading ahead

// The whole file, in order, always two windows under way.
double seconds_to_move(SlotFile& file, bool is_write, std::vector<disk::DirectBuffer>& buffers) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<SlotFile::Ticket> tickets(buffers.size());
  size_t turn = 0;
  for (int64_t offset = 0; offset < file.slot_bytes(0); offset += kBenchWindow) {
    if (tickets[turn]) file.wait(tickets[turn]);
    const SlotFile::Window window{.offset = offset,
                                  .bytes = std::min(kBenchWindow, file.slot_bytes(0) - offset)};
    char* const data = buffers[turn].data();
    tickets[turn] = is_write ? file.write(window, data) : file.read(window, data);
    turn = (turn + 1) % buffers.size();
  }
  for (const auto ticket : tickets) {
    if (ticket) file.wait(ticket);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Values of one setting, the first being where the search begins.
struct Axis {
  std::vector<int64_t> values;
  std::vector<int64_t> quick_values;
  void (*set)(DiskSettings&, int64_t);
};

const std::vector<Axis>& axes() {
  static const std::vector<Axis> all = {
      {{8, 32, 64, 128}, {8, 32}, [](DiskSettings& s, int64_t v) { s.queue_depth = v; }},
      {{kMiB, 128 * kKiB, 256 * kKiB, 512 * kKiB, 4 * kMiB, 8 * kMiB},
       {kMiB, 256 * kKiB, 4 * kMiB},
       [](DiskSettings& s, int64_t v) { s.block_size = v; }},
      {{1, 2, 4, 8}, {1, 2}, [](DiskSettings& s, int64_t v) { s.num_threads = v; }},
      {{0, 1}, {0}, [](DiskSettings& s, int64_t v) { s.single_submit = v != 0; }},
      {{1, 0}, {1}, [](DiskSettings& s, int64_t v) { s.overlap_events = v != 0; }},
  };
  return all;
}

}  // namespace

double DiskSpeed::seconds_per_byte() const {
  if (read_bytes_per_second <= 0 || write_bytes_per_second <= 0) {
    return std::numeric_limits<double>::infinity();
  }
  return 1 / read_bytes_per_second + 1 / write_bytes_per_second;
}

DiskSpeed measure_disk(const DiskBench& bench, const DiskSettings& settings) {
  if (bench.bytes < disk::kDirectAlign) {
    fail_as(ErrorKind::usage, "bench disk: {} bytes, expected at least {}", bench.bytes,
            disk::kDirectAlign);
  }
  SlotFile file({.folder = bench.folder, .slot_bytes = {bench.bytes}, .disk = settings});
  std::vector<disk::DirectBuffer> buffers(kBenchWindows);
  uint32_t noise = 1;  // some disks store what repeats without writing it
  for (disk::DirectBuffer& buffer : buffers) {
    const int64_t bytes = round_up(std::min(bench.bytes, kBenchWindow), disk::kDirectAlign);
    buffer.reserve(bytes);
    for (int64_t i = 0; i < bytes / 4; ++i) {
      noise = noise * 1664525 + 1013904223;
      reinterpret_cast<uint32_t*>(buffer.data())[i] = noise;
    }
  }
  // Space that was only reserved is marked as written by its first write: that is not measured.
  if (!bench.is_quick) seconds_to_move(file, true, buffers);
  const auto bytes = static_cast<double>(bench.bytes);
  DiskSpeed speed{.settings = settings};
  speed.write_bytes_per_second = bytes / seconds_to_move(file, true, buffers);
  speed.read_bytes_per_second = bytes / seconds_to_move(file, false, buffers);
  speed.is_direct = file.notice().empty();
  return speed;
}

DiskSweep best_disk_settings(bool is_quick,
                             const std::function<DiskSpeed(const DiskSettings&)>& measure,
                             const std::function<void(const DiskSpeed&)>& tell) {
  DiskSweep sweep;
  const auto attempt = [&](const DiskSettings& settings) {
    const auto is_same = [&](const DiskSpeed& speed) { return speed.settings == settings; };
    if (std::any_of(sweep.tried.begin(), sweep.tried.end(), is_same)) return;
    sweep.tried.push_back(measure(settings));
    if (tell) tell(sweep.tried.back());
    const double best = sweep.tried[sweep.best].seconds_per_byte();
    if (sweep.tried.back().seconds_per_byte() < best) sweep.best = sweep.tried.size() - 1;
  };
  attempt({});
  for (const Axis& axis : axes()) {
    const DiskSettings from = sweep.tried[sweep.best].settings;
    for (const int64_t value : is_quick ? axis.quick_values : axis.values) {
      DiskSettings settings = from;
      axis.set(settings, value);
      attempt(settings);
    }
  }
  return sweep;
}

std::vector<std::string> slow_disk_warnings(const std::string& folder, const DiskSpeed& speed) {
  std::vector<std::string> warnings;
  const auto compare = [&](const char* what, double found, double expected) {
    if (found >= expected) return;
    warnings.push_back(
        fmt::format("'{}' is {} at {:.2f} GB/s, expected {:.1f} of an NVMe disk; it works, and "
                    "steps wait for it",
                    base::printable(folder), what, found / 1e9, expected / 1e9));
  };
  compare("read", speed.read_bytes_per_second, kExpectedRead);
  compare("written", speed.write_bytes_per_second, kExpectedWrite);
  if (!speed.is_direct) {
    warnings.push_back(
        fmt::format("the file system of '{}' refuses O_DIRECT: these are partly figures of memory",
                    base::printable(folder)));
  }
  return warnings;
}

}  // namespace fullshard::tiers
