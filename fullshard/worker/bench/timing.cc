// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/bench/timing.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "fullshard/memory/device_memory.h"

namespace fullshard::worker {
namespace {

// Copies by memcpy, each thread a part of its own.
void copy_on_host(const at::Tensor& to, const at::Tensor& from) {
  const int64_t bytes = from.numel(), threads = at::get_num_threads();
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = bytes / threads * begin;
    const int64_t last = end == threads ? bytes : bytes / threads * end;
    std::memcpy(to.mutable_data_ptr<uint8_t>() + first, from.const_data_ptr<uint8_t>() + first,
                static_cast<size_t>(last - first));
  });
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double seconds_of(const std::function<void()>& call, at::Device device) {
  const auto start = std::chrono::steady_clock::now();
  call();
  memory::synchronise(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double copy_bandwidth(int64_t bytes, int rounds, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(device);
  const auto from = at::empty({bytes}, options).fill_(1), to = at::empty({bytes}, options).fill_(2);
  std::vector<double> times;
  for (int i = 0; i <= rounds; ++i) {
    const double taken = seconds_of(
        [&] {
          if (device.is_cpu()) {
            copy_on_host(to, from);
          } else {
            to.copy_(from);
          }
        },
        device);
    if (i > 0) times.push_back(taken);
  }
  return 2.0 * static_cast<double>(bytes) / median(std::move(times));
}

}  // namespace fullshard::worker
