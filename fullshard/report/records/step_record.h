// SPDX-License-Identifier: Apache-2.0
// One line of metrics.jsonl: what a training step did.
//
//   {"step":1,"loss":3.21887588500977,"lr":0.0003,"grad_norm":1.5,"loss_scale":1.0,"tokens":4096,
//    "step_s":0.25,"tokens_per_s":16384.0,"mfu":null,"device_peak_bytes":0,"host_peak_bytes":73400320,
//    "comm_s":0.03,"exposed_comm_s":0.01,"skipped":false}
//
// Numbers carry all their digits: equal text means equal bits. JSON cannot express values that are
// not finite, so they are the strings "NaN", "Infinity", "-Infinity".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fullshard {

// Where a step's seconds went, without those spent waiting for communication (exposed_comm_s). The
// rest of step_s belongs to none of them.
struct PhaseTimes {
  double data_s = 0;
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;

  bool operator==(const PhaseTimes&) const = default;
};

// How long an accelerator waited in a step because something is kept outside it, by its own events:
// computation for updates and for parameters; updates for copies into their windows, and for copies
// out of them. The first two are part of the step's time, the last two of the update's.
struct OffloadTimes {
  double update_wait_s = 0;
  double fetch_wait_s = 0;
  double copy_in_wait_s = 0;
  double copy_out_wait_s = 0;

  bool operator==(const OffloadTimes&) const = default;
};

struct StepRecord {
  int64_t step = 0;  // counted from 1: this many steps are done after this one
  double loss = 0;
  double lr = 0;
  std::optional<double> grad_norm{};  // before clipping; null if it was not computed
  double loss_scale = 1;
  int64_t tokens = 0;           // of this step, all ranks together
  double step_s = 0;            // since the end of the previous step, without evaluation and saving
  double tokens_per_s = 0;      // all ranks together
  std::optional<double> mfu{};  // share of the device's peak, 1 is all of it; null: peak unknown
  int64_t device_peak_bytes = 0;  // of the rank with the most; 0 without device memory
  int64_t host_peak_bytes = 0;
  double comm_s = 0;                      // collectives in flight
  double exposed_comm_s = 0;              // the part of it that the step waited for
  bool skipped = false;                   // gradients overflowed: nothing was updated
  std::optional<double> eval_loss{};      // the key is present only if it was measured
  std::optional<PhaseTimes> phases{};     // data_s, forward_s, backward_s, optimizer_s; likewise
  std::optional<OffloadTimes> offload{};  // update_wait_s, fetch_wait_s, …; likewise

  bool operator==(const StepRecord&) const = default;
};

// Without the line break.
std::string to_json_line(const StepRecord& record);

// Reads what to_json_line wrote, to the bit. Keys that this version does not know are skipped; a
// missing key or a wrong type is an Error of kind input that begins with `where` ("FILE:LINE").
StepRecord parse_step_record(std::string_view line, std::string_view where);

}  // namespace fullshard
