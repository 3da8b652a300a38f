// SPDX-License-Identifier: Apache-2.0
// What the engine did, for tests and reports. Bytes on the wire and calls are in comm's Recorder,
// bytes held in memory's Ledger.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fullshard {

struct ShardCounters {
  int64_t unshards = 0;    // units made full that were not
  int64_t prefetches = 0;  // of them issued ahead of their use
  int64_t reductions = 0;  // units reduced
  int64_t overlapped = 0;  // gathers and reductions in flight while a unit computed
  int64_t live_numel = 0;  // gathered elements right now, padding included
  int64_t peak_live_numel = 0;
  int64_t ahead_numel = 0;  // of them fetched ahead and not yet used
  int64_t peak_ahead_numel = 0;
  int64_t parked_gradients = 0;  // gradients kept outside the contiguous buffer
  int64_t gradient_copies = 0;   // gradients copied into their slots
  // Bytes of shards that were cast or copied into the gathered buffer before a gather; 0 where what
  // rests is what is sent.
  int64_t copied_for_gathers = 0;
  int64_t steps = 0;
  int64_t skipped_steps = 0;   // of them left out because gradients overflowed
  int64_t largest_update = 0;  // most elements one optimizer call was given
  // Bytes of optimizer states and halves of masters that went between host memory and windows.
  int64_t states_copied_in = 0;
  int64_t states_copied_out = 0;
  int64_t gradients_copied_out = 0;  // to the host, and back where a later backward adds to them
  int64_t gradients_copied_in = 0;
  int64_t disk_bytes_read = 0;  // of states and parameters that rest on a disk
  int64_t disk_bytes_written = 0;
  double disk_read_wait_s = 0;  // that the host waited for it, for parameters or in a step
  double disk_write_wait_s = 0;
  // Seconds, by the marks of an accelerator: that its caller's stream waited for updates and for
  // parameters that rest elsewhere; that updates waited for copies into windows, and those for
  // copies out of them.
  double update_wait_s = 0, fetch_wait_s = 0;
  double copy_in_wait_s = 0, copy_out_wait_s = 0;
  int64_t parameters_copied_in = 0;  // of shards that rest outside the device, for gathers

  void live(int64_t numel) {
    live_numel += numel;
    peak_live_numel = std::max(peak_live_numel, live_numel);
  }
  void ahead(int64_t numel) {
    ahead_numel += numel;
    peak_ahead_numel = std::max(peak_ahead_numel, ahead_numel);
  }
};

}  // namespace fullshard
