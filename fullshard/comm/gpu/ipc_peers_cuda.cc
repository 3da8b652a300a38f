// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/gpu/ipc_peers.h"

namespace fullshard::comm {
namespace {

struct Introduction {
  pid_t process = 0;
  cudaUUID_t gpu{};
  bool can_share = false;
  bool can_open = false;
  IpcEvents::Handles ready{}, done{};
  IpcPlace sample{};
};

// What the system forbids is no error here: there is another way.
template <class Act>
bool succeeds(const Act& act) {
  try {
    act();
    return true;
  } catch (const Error&) {
    cudaGetLastError();  // else the next launch would report it
    return false;
  }
}

bool can_be_peers(std::span<const Introduction> all) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].can_share || std::memcmp(&all[i].gpu, &all[0].gpu, sizeof(cudaUUID_t)) != 0) {
      return false;
    }
    // Memory cannot be opened by the process that has it: ranks as threads.
    for (size_t j = 0; j < i; ++j) {
      if (all[i].process == all[j].process) return false;
    }
  }
  return true;
}

void introduce(Introduction& own, IpcPeers& peers, const at::Tensor& sample, int rank) {
  int device = 0;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDevice(&device), "asking for the GPU");
  check_cuda(cudaGetDeviceProperties(&properties, device), "asking for the GPU's properties");
  own.gpu = properties.uuid;
  own.process = ::getpid();
  auto ready = IpcEvents::make(), done = IpcEvents::make();
  own.ready = ready.handles();
  own.done = done.handles();
  own.sample = ipc_place_of(sample);
  peers.ready[static_cast<size_t>(rank)].swap(ready);
  peers.done[static_cast<size_t>(rank)].swap(done);
}

void open_others(std::span<const Introduction> all, IpcPeers& peers, int rank) {
  IpcMemory memory;
  for (size_t other = 0; other < all.size(); ++other) {
    if (other == static_cast<size_t>(rank)) continue;
    auto ready = IpcEvents::open(all[other].ready), done = IpcEvents::open(all[other].done);
    peers.ready[other].swap(ready);
    peers.done[other].swap(done);
    memory.open(all[other].sample);
  }
}

}  // namespace

std::unique_ptr<IpcPeers> meet_ipc_peers(Backend& host, at::Device device) {
  constexpr std::string_view kWhat = "the start of CUDA IPC";
  const auto size = static_cast<size_t>(host.size());
  const auto bytes = static_cast<int64_t>(size * sizeof(Introduction));
  const auto memory = host.allocate_common(bytes, at::kByte);
  const auto counters = host.make_counters(1);
  const auto sample = at::empty({1}, at::TensorOptions().device(device));
  const std::span all(static_cast<Introduction*>(memory.data_ptr()), size);
  Introduction& own = all[static_cast<size_t>(host.rank())];
  const auto meet = [&](uint64_t round) {
    counters->publish(0, round);
    counters->wait_for_all(0, round, kWhat, "");
  };

  auto peers = std::make_unique<IpcPeers>();
  peers->ready.resize(size);
  peers->done.resize(size);
  own.can_share = succeeds([&] { introduce(own, *peers, sample, host.rank()); });
  meet(1);
  if (!can_be_peers(all)) return nullptr;
  own.can_open = succeeds([&] { open_others(all, *peers, host.rank()); });
  meet(2);
  const bool all_can =
      std::all_of(all.begin(), all.end(), [](const auto& other) { return other.can_open; });
  meet(3);  // nobody leaves before all have looked, and closed the sample
  return all_can ? std::move(peers) : nullptr;
}

}  // namespace fullshard::comm
