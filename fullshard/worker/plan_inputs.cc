// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/plan_inputs.h"

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/checkpoint_arguments.h"

namespace fullshard::worker {
namespace {

constexpr int kUsualGpusPerHost = 8;
constexpr int64_t kUsualSequence = 512;

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
  const int64_t most = model.max_positions();
  if (most > 0 && options.sequence_length > most) {
    fail_as(ErrorKind::usage, "--sequence-length: is {}, but the model has {} positions",
            options.sequence_length, most);
  }
  if (options.sequence_length > 0) return options.sequence_length;
  return most > 0 ? std::min(most, kUsualSequence) : kUsualSequence;
}

}  // namespace fullshard::worker
