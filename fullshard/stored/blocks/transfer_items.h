// SPDX-License-Identifier: Apache-2.0
// Many transfers of the same kind, prepared and finished by a few threads that each keep several
// in flight: while the device works, a thread sums and copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "fullshard/disk/transfers.h"
#include "fullshard/stored/blocks/buffer_pool.h"

namespace fullshard::stored {

struct TransferPlan {
  int64_t num_items = 0;
  int num_workers = 1;  // threads
  int depth = 1;        // transfers in flight for each of them; 1: it waits for each
  disk::TransferKind kind = disk::TransferKind::automatic;
  // Both get the buffer of the item, which comes from the pool and goes back to it.
  std::function<disk::Transfer(int64_t item, disk::DirectBuffer& buffer)> prepare = {};
  std::function<void(int64_t item, const disk::Transfer& transfer, int64_t result)> finish = {};
};

// Items begin in ascending order. The first error stops the rest and is thrown here; setting `stop`
// also stops the rest, but nothing is thrown. False: it was stopped.
bool do_transfers(const TransferPlan& plan, BufferPool& buffers,
                  const std::atomic<bool>* stop = nullptr);

}  // namespace fullshard::stored
