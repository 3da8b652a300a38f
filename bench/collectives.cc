// SPDX-License-Identifier: Apache-2.0
// Collectives between the ranks of one host, beside the copy bandwidth of the same machine:
//   fullshard launch --ranks 2 -- bench_collectives [MEBIBYTES ...]
//
// As in peers/collectives.py: the size is that of the full fp32 tensor of each rank, the time of a
// call is its slowest rank's, the value the median. Bandwidth counts the bytes that all ranks read
// and write in the pass. Rank 0 prints one JSON line per measurement; bench/collectives.sh makes
// the table with gloo's figures beside it.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::bench {
namespace {

constexpr int kWarmUps = 2;
constexpr int kCopyRepetitions = 12;
constexpr int64_t kCopyBytes = 256 * kMiB;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double seconds_of(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes per second, read and written, of the first `copiers` ranks copying at once.
double copy_bandwidth(const World& world, int copiers) {
  const bool copies = world.rank() < copiers;
  double bandwidth = 0;
  const auto from = at::ones({copies ? kCopyBytes : 0}, at::kByte);
  const auto to = at::zeros({copies ? kCopyBytes : 0}, at::kByte);
  world.communicator().barrier();
  if (copies) {
    std::vector<double> times;
    for (int i = 0; i < kCopyRepetitions; ++i) {
      times.push_back(seconds_of([&] {
        std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), static_cast<size_t>(kCopyBytes));
      }));
    }
    bandwidth = 2.0 * static_cast<double>(kCopyBytes) / median(times);
  }
  auto total = at::empty({1}, at::kDouble).fill_(bandwidth);
  world.communicator().all_reduce(total).wait();
  return total.item<double>();
}

struct Case {
  std::string_view name;
  std::function<void()> call;
  double touched = 0;  // bytes that one rank reads and writes
};

std::vector<Case> cases(const Communicator& ranks, const at::Tensor& full, const at::Tensor& part) {
  const auto bytes = static_cast<double>(full.nbytes());
  const double share = bytes / ranks.size();
  const auto own = full.narrow(0, ranks.rank() * part.numel(), part.numel());
  return {
      // Reads every row, writes every row.
      {"all_gather", [=] { ranks.all_gather(full, part).wait(); }, 2 * bytes},
      // As the engine gathers: the own row is in its place already.
      {"all_gather in place", [=] { ranks.all_gather(full, own).wait(); }, 2 * (bytes - share)},
      // Reads its slice of every rank, writes it once.
      {"reduce_scatter", [=] { ranks.reduce_scatter(part, full, {.op = ReduceOp::sum}).wait(); },
       bytes + share},
      // Reads its part of every rank, writes it to every rank.
      {"all_reduce", [=] { ranks.all_reduce(full).wait(); }, 2 * bytes},
  };
}

// The median over the repetitions of the slowest rank's seconds.
double measure(const Communicator& ranks, const Case& one, int repetitions) {
  auto times = at::empty({repetitions}, at::kDouble);
  for (int i = -kWarmUps; i < repetitions; ++i) {
    ranks.barrier();
    const double taken = seconds_of(one.call);
    if (i >= 0) times.mutable_data_ptr<double>()[i] = taken;
  }
  ranks.all_reduce(times, ReduceOp::max).wait();
  const double* values = times.const_data_ptr<double>();
  return median({values, values + repetitions});
}

void run(const std::vector<int64_t>& sizes) {
  at::set_num_threads(1);
  const auto world = World::from_environment();
  const auto& ranks = world.communicator();
  const bool speaks = world.rank() == 0;
  const double alone = copy_bandwidth(world, 1);
  const double together = copy_bandwidth(world, 2);
  for (const auto& [copiers, bandwidth] : {std::pair(1, alone), std::pair(2, together)}) {
    if (!speaks) break;
    fmt::print(R"({{"what": "copy", "processes": {}, "bytes": {}, "gb_per_s": {:.2f}}})"
               "\n",
               copiers, kCopyBytes, bandwidth / 1e9);
  }
  for (const int64_t bytes : sizes) {
    const auto full = ranks.allocate(bytes / 4, at::kFloat).fill_(1e-3);
    const auto part = ranks.allocate(bytes / 4 / ranks.size(), at::kFloat).fill_(1e-3);
    for (const auto& one : cases(ranks, full, part)) {
      const double seconds = measure(ranks, one, bytes <= kMiB ? 200 : 20);
      if (!speaks) continue;
      const double moved = one.touched * ranks.size() / seconds;
      fmt::print(R"({{"what": "{}", "backend": "{}", "ranks": {}, "bytes": {}, "ms": {:.4f}, )"
                 R"("gb_per_s": {:.2f}, "of_copy": {:.3f}}})"
                 "\n",
                 one.name, ranks.backend_name(), ranks.size(), bytes, seconds * 1e3, moved / 1e9,
                 moved / together);
    }
  }
}

}  // namespace
}  // namespace fullshard::bench

int main(int argc, char** argv) {
  using namespace fullshard;
  std::vector<int64_t> sizes;
  try {
    for (int i = 1; i < argc; ++i) sizes.push_back(std::stoll(argv[i]) * kMiB);
    if (sizes.empty()) sizes = {64 * kKiB, kMiB, 16 * kMiB, 256 * kMiB};
    bench::run(sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: bench_collectives: %s\n", error.what());
    return 1;
  }
}
