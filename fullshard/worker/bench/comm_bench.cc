// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/bench/comm_bench.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/report/records/number_text.h"
#include "fullshard/worker/bench/free_memory.h"
#include "fullshard/worker/bench/timing.h"

namespace fullshard::worker {
namespace {

constexpr int kCommWarmUps = 2;
constexpr int64_t kCopyBytes = 256 * kMiB, kQuickCopyBytes = 64 * kMiB;
constexpr double kGigabyte = 1e9;

struct Collective {
  std::string name;
  double on_the_bus;  // share of the tensor's bytes that the slowest link carries, as NCCL's tests
                      // count
  double touched;     // bytes that a rank reads and writes where ranks share memory
  std::function<void()> call;
};

struct MeasuredCollective {
  std::string name;
  int64_t bytes = 0;
  double seconds = 0, algorithm_rate = 0, bus_rate = 0;
  double of_copy = 0;  // 0: unknown
};

// Bytes per second of all ranks together, while those before `num_copying` copy at once.
double copy_rate(const World& world, int num_copying, const cli::CommBenchArguments& arguments) {
  const bool is_quick = arguments.options().quick;
  world.communicator().barrier("a copy");
  const double own = world.rank() < num_copying
                         ? copy_bandwidth(is_quick ? kQuickCopyBytes : kCopyBytes, is_quick ? 3 : 9,
                                          world.device())
                         : 0;
  auto total = at::full({1}, own, at::kDouble);
  world.communicator().all_reduce(total, ReduceOp::sum, "a copy").wait();
  return total.item<double>();
}

at::ScalarType sent_dtype(const std::string& name) {
  return name == "bf16" ? at::kBFloat16 : name == "fp16" ? at::kHalf : at::kFloat;
}

std::vector<int64_t> sizes_of(const cli::CommBenchArguments::Options& options, int64_t multiple) {
  std::vector<int64_t> sizes = {64 * kKiB, kMiB, 16 * kMiB, 256 * kMiB};
  if (options.quick) sizes = {64 * kKiB, 16 * kMiB};
  if (!options.sizes.empty()) sizes.clear();
  for (const uint64_t size : options.sizes) sizes.push_back(static_cast<int64_t>(size));
  // Every rank has equally many elements of it.
  for (int64_t& size : sizes) size = std::max(size / multiple, int64_t{1}) * multiple;
  return sizes;
}

// The bytes of the largest size: the tensor twice and a rank's part, for all ranks that share the
// memory.
void check_memory(const World& world, const cli::CommBenchArguments::Options& options) {
  const auto multiple =
      static_cast<int64_t>(c10::elementSize(sent_dtype(options.dtype))) * world.size();
  const auto sizes = sizes_of(options, multiple);
  const int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const int64_t sharing = world.device().is_cpu() ? world.local_size() : 1;
  check_free(fmt::format("bench comm: {} on {} rank{} here", format_bytes(largest), sharing,
                         sharing == 1 ? "" : "s"),
             sharing * (2 * largest + largest / world.size()), world.device(),
             "give a smaller --size");
}

class CommBench {
 public:
  CommBench(const World& world, const cli::CommBenchArguments& arguments)
      : world_(world),
        ranks_(world.communicator()),
        options_(arguments.options()),
        dtype_(sent_dtype(options_.dtype)),
        one_copy_(copy_rate(world, 1, arguments)),
        all_copy_(copy_rate(world, world.size(), arguments)) {}

  void run() {
    if (world_.rank() == 0 && !options_.json) fmt::print("{}", heading());
    const auto element = static_cast<int64_t>(c10::elementSize(dtype_));
    for (const int64_t bytes : sizes_of(options_, element * world_.size())) {
      const auto full = buffer(bytes / element), part = buffer(bytes / element / world_.size());
      const auto other = buffer(bytes / element);
      for (const auto& one : collectives(full, part, other)) note(measure(one, bytes));
    }
    if (world_.rank() == 0 && options_.json) fmt::print("{}\n", json().dump());
    base::flush_standard_output();
  }

 private:
  // Allocated as in the engine: host memory that needs no intermediate copy.
  at::Tensor buffer(int64_t numel) const {
    if (world_.device().is_cpu()) return ranks_.allocate(numel, dtype_).fill_(1e-3);
    return at::full({numel}, 1e-3, at::TensorOptions().dtype(dtype_).device(world_.device()));
  }

  std::vector<Collective> collectives(const at::Tensor& full, const at::Tensor& part,
                                      const at::Tensor& other) const {
    const double size = world_.size(), others = (size - 1) / size;
    const auto bytes = static_cast<double>(full.nbytes()), share = bytes / size;
    const auto own = full.narrow(0, world_.rank() * part.numel(), part.numel());
    const auto& ranks = ranks_;
    return {
        {"all_gather", others, 2 * bytes, [=] { ranks.all_gather(full, part).wait(); }},
        // As the engine gathers: the rank's own row is already in place.
        {"all_gather in place", others, 2 * (bytes - share),
         [=] { ranks.all_gather(full, own).wait(); }},
        {"reduce_scatter", others, bytes + share, [=] { ranks.reduce_scatter(part, full).wait(); }},
        {"all_reduce", 2 * others, 2 * bytes,
         [=] { ranks.all_reduce(full, ReduceOp::average).wait(); }},
        {"all_to_all", others, 2 * bytes, [=] { ranks.all_to_all(other, full).wait(); }},
        {"broadcast", 1, 2 * bytes * others, [=] { ranks.broadcast(full, 0).wait(); }},
    };
  }

  // The median over the repetitions of the slowest rank's seconds.
  MeasuredCollective measure(const Collective& one, int64_t bytes) const {
    const int repetitions = (bytes <= kMiB ? 100 : 12) / (options_.quick ? 4 : 1);
    auto times = at::empty({repetitions}, at::kDouble);
    for (int i = -kCommWarmUps; i < repetitions; ++i) {
      ranks_.barrier();
      const double taken = seconds_of(one.call, world_.device());
      if (i >= 0) times.mutable_data_ptr<double>()[i] = taken;
    }
    ranks_.all_reduce(times, ReduceOp::max).wait();
    const double* values = times.const_data_ptr<double>();
    const double seconds = median({values, values + repetitions});
    const double rate = static_cast<double>(bytes) / seconds;
    MeasuredCollective measured{one.name, bytes, seconds, rate, rate * one.on_the_bus};
    if (shares_memory()) measured.of_copy = one.touched * world_.size() / seconds / all_copy_;
    return measured;
  }

  bool shares_memory() const { return world_.device().is_cpu() && ranks_.shares_memory(); }

  std::string heading() const {
    const std::string where =
        world_.num_hosts() > 1 ? fmt::format(" of {} hosts", world_.num_hosts()) : "";
    std::string text = fmt::format(
        "{} ranks{} on {}, {}\ncopy           {:>8.2f} GB/s by one rank, {:.2f} by all of them at "
        "once\n\n{:<20} {:>10} {:>10} {:>11} {:>11}",
        world_.size(), where, ranks_.backend_name(), options_.dtype, one_copy_ / kGigabyte,
        all_copy_ / kGigabyte, "collective", "size", "time", "algbw GB/s", "busbw GB/s");
    return text + (shares_memory() ? "  of a copy\n" : "\n");
  }

  void note(MeasuredCollective measured) {
    if (world_.rank() != 0) return;
    if (!options_.json) {
      fmt::print("{:<20} {:>10} {:>10} {:>11.2f} {:>11.2f}", measured.name,
                 format_bytes(measured.bytes), report::format_seconds(measured.seconds),
                 measured.algorithm_rate / kGigabyte, measured.bus_rate / kGigabyte);
      if (measured.of_copy > 0) fmt::print("  {:>9.2f}", measured.of_copy);
      fmt::print("\n");
      base::flush_standard_output();
    }
    measured_.push_back(std::move(measured));
  }

  nlohmann::ordered_json json() const {
    auto rows = nlohmann::ordered_json::array();
    for (const auto& one : measured_) {
      nlohmann::ordered_json row = {{"name", one.name},
                                    {"bytes", one.bytes},
                                    {"seconds", one.seconds},
                                    {"algorithm_gb_per_s", one.algorithm_rate / kGigabyte},
                                    {"bus_gb_per_s", one.bus_rate / kGigabyte},
                                    {"of_copy", nullptr}};
      if (one.of_copy > 0) row["of_copy"] = one.of_copy;
      rows.push_back(std::move(row));
    }
    return {{"ranks", world_.size()},
            {"hosts", world_.num_hosts()},
            {"device", world_.device().is_cpu() ? "cpu" : "cuda"},
            {"backend", ranks_.backend_name()},
            {"dtype", options_.dtype},
            {"copy_gb_per_s",
             {{"one_rank", one_copy_ / kGigabyte}, {"all_ranks", all_copy_ / kGigabyte}}},
            {"collectives", std::move(rows)}};
  }

  const World& world_;
  const Communicator& ranks_;
  const cli::CommBenchArguments::Options& options_;
  const at::ScalarType dtype_;
  const double one_copy_, all_copy_;  // bytes per second, read and written
  std::vector<MeasuredCollective> measured_;
};

}  // namespace

int run_bench_comm(const cli::CommBenchArguments& arguments) {
  // Each rank uses one thread for collectives between ranks of one host, as in training.
  at::set_num_threads(1);
  const World world = World::from_environment(
      {.backend = arguments.options().backend, .device = arguments.device()});
  if (world.size() == 1) {
    fail_as(ErrorKind::usage, "bench comm: needs at least two ranks; give --ranks 2 or more");
  }
  // Hosts may have different amounts of it.
  engine::throw_alike(world.communicator(),
                      engine::error_of([&] { check_memory(world, arguments.options()); }),
                      "free memory");
  CommBench(world, arguments).run();
  return 0;
}

}  // namespace fullshard::worker
