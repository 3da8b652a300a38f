#include "fullshard/train/peak_memory.h"

#include <sys/resource.h>

#include "fullshard/memory/device_memory.h"

namespace fullshard {

int64_t peak_resident_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

void add_peak_memory(const World& world, StepRecord& record) {
  const auto peaks = world.communicator().allocate(2, at::kLong);
  int64_t* most = peaks.mutable_data_ptr<int64_t>();
  most[0] = peak_resident_bytes();
  most[1] = device_memory(world.device()).peak_bytes;
  world.communicator().all_reduce(peaks, ReduceOp::max, "peak memory").wait();
  record.host_peak_bytes = most[0];
  record.device_peak_bytes = most[1];
}

}  // namespace fullshard
