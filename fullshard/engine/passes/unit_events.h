// SPDX-License-Identifier: Apache-2.0
// What a unit reports of its passes, and all that it asks of anybody. PassController answers with
// the order of gathers and reductions; a test answers with what it likes. Calls come from one
// thread at a time: the module's in forward, autograd's in backward.
#pragma once

#include <cstdint>

#include "fullshard/nn/forward_hooks.h"

namespace fullshard::engine {

class UnitRuntime;

class UnitEvents {
 public:
  virtual ~UnitEvents() = default;

  // A call of the unit begins; afterwards its parameters are full.
  virtual void before_forward(UnitRuntime& unit) = 0;
  // A call is over; the unit may be resharded here. `has_backward`: its outputs have hooks on them.
  virtual void after_forward(UnitRuntime& unit, bool has_backward) = 0;
  // Around both passes of a recomputed call.
  virtual void enter_recompute(nn::RecomputePass pass, uint64_t id) = 0;
  virtual void leave_recompute() noexcept = 0;

  // Autograd has come to a hook of any unit; before everything else that the hook does.
  virtual void backward_runs() = 0;
  // The unit's backward begins; afterwards its parameters are full.
  virtual void before_backward(UnitRuntime& unit) = 0;
  // A gradient of any parameter is about to be taken.
  virtual void gradient_arrived() = 0;
  // The unit has all its gradients: it may be reduced in its turn.
  virtual void gradients_ready(UnitRuntime& unit) = 0;
};

}  // namespace fullshard::engine
