// SPDX-License-Identifier: Apache-2.0
// Kernels that were timed on a GPU, one line per shape; `fullshard bench kernels` writes it:
//
//   {"device": "NVIDIA H200", "kernels": [
//     {"name": "mm", "dims": [1, 16384, 4096, 4096], "dtype": "BFloat16", "seconds": 0.00083},
//     {"name": "causal_attention", "dims": [8, 32, 2048, 2048, 64], "dtype": …, "seconds": …},
//     {"name": "memory", "bytes": 134217728, "seconds": 3.4e-05}]}
//
// `memory` stands for every operator that only moves data: so many bytes read and written.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/tensor/operator_watch.h"

namespace fullshard::simulation {

struct TimedKernel {
  std::string name{};
  std::vector<int64_t> dims{};
  std::string dtype{};  // libtorch's name
  int64_t bytes = 0;    // of "memory"
  double seconds = 0;

  bool operator==(const TimedKernel&) const = default;
};

class KernelTable {
 public:
  KernelTable() = default;
  KernelTable(std::string device, const std::vector<TimedKernel>& kernels);

  // An Error of kind usage names the file and what is wrong.
  static KernelTable load(const std::string& path);
  static KernelTable parse(std::string_view text, const std::string& name);
  // The table of a cluster's preset; empty if there are no timings.
  static KernelTable of_preset(std::string_view cluster);

  // Nothing if no kernel of that shape was timed; attention with dropout falls back to the time of
  // attention without. Sizes of memory between two that were timed are interpolated, those beyond
  // take the rate of the last.
  std::optional<double> seconds_of(const tensor::OperatorCall& call) const;

  const std::string& device() const { return device_; }
  std::string json() const;

 private:
  std::optional<double> of_shape(const std::string& name, const tensor::OperatorCall& call) const;

  std::string device_;
  std::vector<TimedKernel> kernels_;
  std::map<std::string, double> by_shape_;
  std::map<int64_t, double> by_bytes_;
};

// The kernels timed on our own H200.
std::string_view h200_kernels();

}  // namespace fullshard::simulation
