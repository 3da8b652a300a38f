// SPDX-License-Identifier: Apache-2.0
// Independent pieces of work on a few threads: reading and writing with several calls in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace fullshard::stored {

// Calls work(worker, item) once for every item in [0, num_items), in ascending order of starting;
// workers are numbered from 0. The first error stops the rest and is thrown here; setting `stop`
// also stops the rest, but nothing is thrown. False: it was stopped.
bool do_items(int64_t num_items, int num_workers,
              const std::function<void(int worker, int64_t item)>& work,
              const std::atomic<bool>* stop = nullptr);

}  // namespace fullshard::stored
