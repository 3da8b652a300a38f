// SPDX-License-Identifier: Apache-2.0
// A real run's memory, as the allocators see it, for comparison with a plan.
#pragma once

#include <atomic>
#include <string>

#include "fullshard/planning/estimate.h"
#include "fullshard/tensor/allocation_watch.h"

namespace fullshard::testing {

// All that a thread's tensors hold.
class TotalWatch : public tensor::AllocationWatch {
 public:
  void change(at::Device, tensor::AllocationKind, int64_t bytes) override;
  int64_t peak() const { return peak_; }

 private:
  std::atomic<int64_t> held_{0}, peak_{0};
};

struct Case {
  std::string config;  // of the model: the text of a config.json
  int ranks = 1;
  int stage = 3;
  int64_t micro_batch = 2;
  int64_t sequence_length = 64;
  bool recompute = false;
  std::string precision = "no";
  std::string offload = "";  // as --offload has it
  bool contiguous_gradients = true;
  int64_t lora_rank = 0;      // adapters beside a frozen model
  bool base_in_int8 = false;  // of which
};

// The fullest rank's.
struct Measured {
  int64_t memory_bytes = 0;
  int64_t disk_bytes = 0;
};

Plan plan_of(const Case& run);
EstimateOptions options_of(const Case& run);
Estimate planned(const Case& run);
// Peaks over three steps, all ranks as threads of this process.
Measured measured(const Case& run);

}  // namespace fullshard::testing
