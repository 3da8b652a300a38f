// Many transfers of the same sort, prepared and finished by a few threads that each keep several
// under way: while the device works, a thread sums and copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "fullshard/stored/buffer_pool.h"
#include "fullshard/stored/transfers.h"

namespace fullshard {

struct TransferPlan {
  int64_t num_items = 0;
  int num_workers = 1;  // threads
  int depth = 1;        // transfers under way for each of them; 1: it waits for each
  TransferKind kind = TransferKind::automatic;
  // Both get the buffer of the item, which comes from the pool and goes back to it.
  std::function<Transfer(int64_t item, DirectBuffer& buffer)> prepare = {};
  std::function<void(int64_t item, const Transfer& transfer, int64_t result)> finish = {};
};

// Items begin in ascending order. The first error ends the rest and is thrown here; so does `stop`
// when somebody sets it, but then nothing is thrown. False: it was stopped.
bool do_transfers(const TransferPlan& plan, BufferPool& buffers,
                  const std::atomic<bool>* stop = nullptr);

}  // namespace fullshard
