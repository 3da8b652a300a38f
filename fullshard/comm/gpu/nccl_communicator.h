// SPDX-License-Identifier: Apache-2.0
// One NCCL communicator that never keeps a host waiting without limit: it is made non-blocking, and
// whoever waits for it asks in between whether that is in vain. Only in builds with CUDA.
#pragma once

#include <nccl.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>

namespace fullshard::comm {

class NcclCommunicator {
 public:
  // Called again and again with the time waited so far; throws when waiting is in vain.
  using Look = std::function<void(std::chrono::milliseconds waited)>;

  // Returns when all ranks have met; after an Error nothing is left of it. Collective.
  NcclCommunicator(const ncclUniqueId& identifier, int rank, int size, const Look& look);
  ~NcclCommunicator() { abort(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // NCCL's calls in `issue` form one group; returns when their kernels are in their stream. An
  // Error that begins with `what`, if NCCL refuses or the communicator was aborted.
  using Issue = std::function<ncclResult_t(ncclComm_t)>;
  void run(const std::string& what, const Issue& issue, const Look& look);

  // What NCCL reports by itself; empty while nothing is wrong. Any thread.
  std::string fault();
  // Ends all its kernels, whoever waits for them, and frees it. Any thread; later calls do nothing.
  void abort() noexcept;
  // When everything on its stream has ended: says goodbye to the others, in a limited time.
  void finish() noexcept;

 private:
  ncclResult_t state();  // ncclInvalidUsage once it was aborted
  void settle(const std::string& what, const Look& look);
  std::string text_of(ncclResult_t result) const;

  std::mutex mutex_;  // held while NCCL uses the handle, which abort() takes away
  ncclComm_t handle_ = nullptr;
};

}  // namespace fullshard::comm
