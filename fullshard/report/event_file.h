// SPDX-License-Identifier: Apache-2.0
// A run's values as an event file, which TensorBoard reads.
//
// The file is a row of TFRecords:
//
//   uint64  length of the message             little-endian, as are all below
//   uint32  masked CRC-32C of these 8 bytes
//   bytes   the message: a tensorflow.Event
//   uint32  masked CRC-32C of the message
//
// An Event is a protobuf message: wall_time (1, double), step (2, varint), and either file_version
// (3, text: the first event says "brain.Event:2") or summary (5) with values (1) of tag (1, text)
// and simple_value (2, float). These six fields are written by hand: protobuf's library would be
// the largest dependency of the program that answers first, for a hundred bytes in a step.
#pragma once

#include "fullshard/report/monitor.h"
#include "fullshard/report/records/append_file.h"

namespace fullshard::report {

class EventFile : public Monitor {
 public:
  // The file is named after the run's folder: a resumed run finds its own and continues after its
  // last step; runs that share a folder of events do not change each other's files.
  EventFile(std::string folder, const MonitorOptions& options);

  void add(const StepRecord& record) override;
  std::string_view name() const override { return "tensorboard"; }
  const std::string& folder() const override { return folder_; }

 private:
  void append(const std::string& records);

  std::string folder_;
  int64_t samples_per_step_;
  AppendFile file_;
};

}  // namespace fullshard::report
