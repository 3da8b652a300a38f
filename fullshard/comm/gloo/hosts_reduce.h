// SPDX-License-Identifier: Apache-2.0
// The ordered sum between hosts: this host's ranks add first, in shared memory; each lane then
// exchanges those sums and adds them host by host. Between hosts that is a ring's volume in fp32,
// divided by the ranks of a host.
#pragma once

#include <ATen/core/Tensor.h>

#include "fullshard/comm/gloo/hosts_collectives.h"

namespace fullshard::comm {

// What a call runs over.
struct HostsLink {
  const HostsLayout& layout;
  Backend& local;
  const GlooTurn& turn;

  // A part of the turn's call, inside this host.
  Call local_call() const {
    Call call = turn.call;
    call.terms = &turn.terms;
    return call;
  }
};

void hosts_reduce_scatter(const HostsLink& link, const at::Tensor& shard, const at::Tensor& rows,
                          const ReduceOptions& options);

}  // namespace fullshard::comm
