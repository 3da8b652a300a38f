// SPDX-License-Identifier: Apache-2.0
// The results of operators that are not run, with nothing in them: sizes by libtorch's own rules
// where it has some without Python, else by ours.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace fullshard::tensor {

// The keys under which a plan runs; switched off while libtorch infers sizes.
struct ShapeScope {
  c10::DispatchKey factories, operators;
};

// Takes the arguments from the stack and leaves the results. An operator that nobody knows is an
// Error that names it.
void make_results(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack,
                  const ShapeScope& keys);

// What an operator takes for itself beside its result, and gives back at once.
void take_room_for_work(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

}  // namespace fullshard::tensor
