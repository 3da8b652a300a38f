// SPDX-License-Identifier: Apache-2.0
// What an operator of libtorch would compute and move, from its arguments alone.
#pragma once

#include <optional>
#include <vector>

#include "fullshard/tensor/operator_watch.h"

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace fullshard::tensor {

// `arguments` of the call; results are added by whoever knows them (OperatorCall::bytes). Nothing
// for operators that run nothing on a device: those on the CPU, and those for the allocator.
std::optional<OperatorCall> describe_operator(const c10::OperatorHandle& op,
                                              const std::vector<c10::IValue>& arguments);

}  // namespace fullshard::tensor
