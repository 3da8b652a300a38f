// SPDX-License-Identifier: Apache-2.0
// The pieces of an optimizer's steps as tables for the device, kept from step to step.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/cuda/device_table.h"
#include "fullshard/optim/parameter_rules.h"
#include "fullshard/optim/state_places.h"

namespace fullshard::optim {

class DevicePieces {
 public:
  // Which parameters have the same rules.
  struct Rules {
    double lr_scale = 1;
    std::optional<double> weight_decay;

    bool operator==(const Rules&) const = default;
  };

  // Every step asks for the tables of the same batches of pieces, in the same order.
  void start_step() { next_ = 0; }
  // Valid until the next start_step().
  const DeviceTable& table_of(const std::vector<PieceView>& pieces, const StatePlaces& states,
                              const ParameterTable& parameters, at::Device device);

  // By DevicePiece::setting.
  const std::vector<Rules>& rules() const { return rules_; }

 private:
  int setting_of(const ParameterSettings& parameter);

  std::vector<Rules> rules_;
  std::vector<int> settings_;  // by ParameterSettings::index; -1: not looked up yet
  std::deque<DeviceTable> tables_;
  size_t next_ = 0;
};

}  // namespace fullshard::optim
