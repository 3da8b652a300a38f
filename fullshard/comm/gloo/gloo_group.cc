// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>
#include <cstdlib>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/broken_pipe.h"

namespace fullshard::comm {
namespace {

using Options = c10d::ProcessGroupGloo::Options;

// c10d's flight recorder keeps a table of groups that it does not lock: two groups of one process
// that call at the same time can end it. It reads its size from the environment once, when the
// first group calls; ours is the Recorder. A size that the user has set stays.
void turn_off_flight_recorder() {
  [[maybe_unused]] static const int done = ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/0);
}

c10::intrusive_ptr<Options> options_of(const GlooDevice& device,
                                       std::chrono::milliseconds timeout) {
  turn_off_flight_recorder();
  auto options = Options::create(timeout);
  options->threads = 1;  // calls come one after another
  using Group = c10d::ProcessGroupGloo;
  options->devices.push_back(
      !device.interface.empty() ? Group::createDeviceForInterface(device.interface)
      : !device.address.empty() ? Group::createDeviceForHostname(device.address)
                                : Group::createDefaultDevice());
  return options;
}

// The connections are a protected member.
class CuttableGloo : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  void cut() {
    for (const auto& context : contexts_) context->closeConnections();
  }
};

std::atomic<int64_t> calls_made = 0;

}  // namespace

int64_t GlooGroup::num_calls() { return calls_made; }

class GlooGroup::Gloo {
 public:
  explicit Gloo(c10::intrusive_ptr<CuttableGloo> made) : group(std::move(made)) {}
  const c10::intrusive_ptr<CuttableGloo> group;
};

GlooGroup::GlooGroup(const Store& store, int rank, int size, const GlooDevice& device,
                     std::chrono::milliseconds timeout) {
  const NoBrokenPipe for_gloos_threads;
  gloo_ = std::make_unique<Gloo>(c10::make_intrusive<CuttableGloo>(
      c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store.handle()), rank, size,
      options_of(device, timeout)));
}

GlooGroup::~GlooGroup() = default;

void GlooGroup::all_gather(at::Tensor full, at::Tensor own, std::chrono::milliseconds timeout) {
  ++calls_made;
  c10d::AllgatherOptions options;
  options.timeout = timeout;
  gloo_->group->_allgather_base(full, own, options)->wait();
}

void GlooGroup::all_to_all(at::Tensor received, std::vector<int64_t> received_counts,
                           at::Tensor sent, std::vector<int64_t> sent_counts,
                           std::chrono::milliseconds timeout) {
  ++calls_made;
  c10d::AllToAllOptions options;
  options.timeout = timeout;
  gloo_->group->alltoall_base(received, sent, received_counts, sent_counts, options)->wait();
}

void GlooGroup::broadcast(at::Tensor tensor, int root, std::chrono::milliseconds timeout) {
  ++calls_made;
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = timeout;
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  gloo_->group->broadcast(tensors, options)->wait();
}

void GlooGroup::cut() noexcept {
  try {
    gloo_->group->cut();
  } catch (...) {  // closed already
  }
}

}  // namespace fullshard::comm
