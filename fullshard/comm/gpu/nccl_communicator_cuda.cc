// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <thread>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/awake_time.h"
#include "fullshard/comm/gpu/nccl_communicator.h"

namespace fullshard::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// NCCL's other thread needs some ten microseconds; then somebody is being waited for.
constexpr std::chrono::microseconds kEager{500};
constexpr milliseconds kNcclPause{1}, kBetweenNcclLooks{100};
constexpr std::chrono::seconds kNcclGoodbye{10};

bool is_well(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

}  // namespace

NcclCommunicator::NcclCommunicator(const ncclUniqueId& identifier, int rank, int size,
                                   const Look& look) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&handle_, size, identifier, rank, &config);
  try {
    check(is_well(result), "nccl: the start of a communicator failed: {}", text_of(result));
    settle("the start of a communicator", look);
  } catch (...) {
    abort();
    throw;
  }
}

std::string NcclCommunicator::text_of(ncclResult_t result) const {
  const char* more = ncclGetLastError(nullptr);
  return fmt::format("{}{}{}", ncclGetErrorString(result), more && *more ? "; " : "",
                     more ? more : "");
}

ncclResult_t NcclCommunicator::state() {
  const std::lock_guard lock(mutex_);
  if (handle_ == nullptr) return ncclInvalidUsage;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(handle_, &state);
  return asked == ncclSuccess ? state : asked;
}

// Until NCCL has carried out what it was asked for.
void NcclCommunicator::settle(const std::string& what, const Look& look) {
  const auto start = Clock::now();
  auto next_look = start + kBetweenNcclLooks;
  AwakeTime waited(start);
  for (ncclResult_t now = state(); now != ncclSuccess; now = state()) {
    if (Clock::now() >= next_look || !is_well(now)) {
      look(waited.passed());
      next_look = Clock::now() + kBetweenNcclLooks;
    }
    check(is_well(now), "nccl: {} failed: {}", what, text_of(now));
    if (Clock::now() - start > kEager) std::this_thread::sleep_for(kNcclPause);
  }
}

void NcclCommunicator::run(const std::string& what, const Issue& issue, const Look& look) {
  {
    const std::lock_guard lock(mutex_);
    check(handle_ != nullptr, "nccl: {}: the communicator was given up after a failure", what);
    ncclResult_t result = ncclGroupStart();
    if (result == ncclSuccess) {
      result = issue(handle_);
      const ncclResult_t ended = ncclGroupEnd();
      if (is_well(result)) result = ended;
    }
    check(is_well(result), "nccl: {} failed: {}", what, text_of(result));
  }
  settle(what, look);
}

std::string NcclCommunicator::fault() {
  const ncclResult_t now = state();
  return is_well(now) ? "" : fmt::format("failed: {}", text_of(now));
}

void NcclCommunicator::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (auto* handle = std::exchange(handle_, nullptr)) ncclCommAbort(handle);
}

void NcclCommunicator::finish() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (handle_ == nullptr || !is_well(ncclCommFinalize(handle_))) return;
  }
  const auto start = Clock::now();
  ncclResult_t now = state();
  while (now == ncclInProgress && Clock::now() - start < kNcclGoodbye) {
    std::this_thread::sleep_for(kNcclPause);
    now = state();
  }
  if (now != ncclSuccess) return;  // peers are gone: abort() frees it
  const std::lock_guard lock(mutex_);
  if (auto* handle = std::exchange(handle_, nullptr)) ncclCommDestroy(handle);
}

}  // namespace fullshard::comm
