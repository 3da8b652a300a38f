// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/plan_inputs.h"

#include <algorithm>

#include "fullshard/cli/flags/checkpoint_arguments.h"
#include "fullshard/train/run/run_data.h"

namespace fullshard::worker {
namespace {

constexpr int kUsualGpusPerHost = 8;

}  // namespace

planning::MemoryLimits limits_of(const cli::PlanningOptions& own, at::Device device, int ranks,
                                 int ranks_per_host) {
  const int usual = device.is_cpu() ? ranks : std::min(ranks, kUsualGpusPerHost);
  auto limits = planning::limits_here(device, ranks_per_host > 0 ? ranks_per_host : usual);
  if (!own.device_memory.empty()) {
    limits.device_bytes = cli::parse_file_size(own.device_memory, "--device-memory");
  }
  if (!own.host_memory.empty()) {
    limits.host_bytes = cli::parse_file_size(own.host_memory, "--host-memory");
  }
  return limits;
}

int64_t planned_sequence_length(const RunOptions& options, const LanguageModel& model) {
  return train::sequence_length_of(options.sequence_length, model);
}

}  // namespace fullshard::worker
