// SPDX-License-Identifier: Apache-2.0
// Which link carries device tensors, decided once for all ranks from what each of them told: a pure
// function, so that every cluster can be tried without a GPU.
#pragma once

#include <string>
#include <vector>

namespace fullshard::comm {

enum class DeviceLink {
  self,    // one rank
  shared,  // through each other's device memory: ranks of one host that share a GPU; staged
           // where the system forbids that
  staged,  // through host memory: hosts without nccl
  nccl     // a GPU for every rank
};

// What a rank tells about itself.
struct RankDevice {
  int host = 0;
  std::string gpu = {};  // what no other GPU of its host has; empty: the rank computes on the CPU
};

struct LinkDecision {
  DeviceLink link = DeviceLink::nccl;
  std::string warning = {};  // why it is a slow one, where nobody asked for that; else empty
};

// `backend`: auto, shm, gloo or nccl. nccl wherever every rank has a GPU of its own, by whatever
// number it knows it and however many its host has. A usage Error where that contradicts the
// backend, or some ranks compute on the CPU.
LinkDecision decide_link(const std::vector<RankDevice>& ranks, const std::string& backend);

}  // namespace fullshard::comm
