// SPDX-License-Identifier: Apache-2.0
// Updates of masters that run beside the caller's stream, because states rest elsewhere. Whoever
// issues them (an optimizer) enters itself in the engine, so that everybody who reads or replaces
// masters or states can have them finished first.
#pragma once

namespace fullshard::engine {

class UpdateStream {
 public:
  virtual ~UpdateStream() = default;

  // The host waits until nothing is under way. What was fetched for the next step counts no more:
  // the caller may write masters and states.
  virtual void settle() = 0;

  // Nothing is under way, and for a while nothing will be: memory of the device that holds nothing
  // between steps is given back, and taken again.
  virtual void give_windows_back() {}
  virtual void take_windows() {}
};

}  // namespace fullshard::engine
