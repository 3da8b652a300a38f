// What a unit keeps beside its parameters: who surrounds its forward, and whether it is recomputed.
#pragma once

#include <string>
#include <typeinfo>

#include "fullshard/nn/forward_hooks.h"

namespace fullshard {

// A mix-in, found by dynamic_cast<UnitState*>(module). It belongs to its module; the hooks belong
// to the engine, which takes them back (set_hooks(nullptr)) before it goes. Not thread-safe: set
// before the first forward, or between steps.
class UnitState {
 public:
  UnitState() = default;
  virtual ~UnitState() = default;

  // A copy of a module is not sharded because the original is: hooks are never copied, and an
  // assignment keeps those of the target.
  UnitState(const UnitState& other) : UnitState() { set_recompute(other.recompute_); }
  UnitState& operator=(const UnitState& other) {
    set_recompute(other.recompute_);
    return *this;
  }

  // The name that wrapping by class knows, such as "Block".
  virtual std::string class_name() const;

  ForwardHooks* hooks() const { return hooks_; }
  void set_hooks(ForwardHooks* hooks) { hooks_ = hooks; }

  // Whether activations are thrown away in forward and computed again in backward.
  bool recompute() const { return recompute_; }
  void set_recompute(bool recompute) { recompute_ = recompute; }

  // Nothing surrounds the forward: the common case of a module that is not sharded.
  bool is_plain() const { return !(static_cast<int>(hooks_ != nullptr) | int{recompute_}); }

 private:
  ForwardHooks* hooks_ = nullptr;
  bool recompute_ = false;
};

}  // namespace fullshard
