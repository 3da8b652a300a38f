// SPDX-License-Identifier: Apache-2.0
// What libtorch's products take for themselves beside their results, and give back at once.
#pragma once

#include <cstdint>
#include <vector>

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace fullshard::tensor {

// Of a product of 16-bit matrices on the CPU; 0 of everything else. oneDNN sums those in fp32, and
// how much of it lies in a buffer depends on the processor and the sizes: a product of small
// matrices is made once, on a thread of its own, to find out. Of a large one all sums are taken.
int64_t product_work_bytes(const c10::OperatorHandle& op,
                           const std::vector<c10::IValue>& arguments);

}  // namespace fullshard::tensor
