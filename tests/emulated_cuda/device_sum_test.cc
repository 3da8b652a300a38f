// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gpu/device_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fullshard/comm/ordered_sum.h"
#include "tests/emulated_cuda/kernel_run.h"

namespace fullshard::emulation {
namespace {

TEST(EmulatedDeviceSum, HasTheBitsOfTheOrderedSum) {
  const int64_t numel = 1003;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
    for (const size_t num_rows : {1, 2, 5}) {
      for (const auto op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max, ReduceOp::min}) {
        if (dtype == at::kLong && op == ReduceOp::average) continue;
        SCOPED_TRACE(::testing::Message() << num_rows << " rows of " << dtype);
        std::vector<at::Tensor> values;
        std::vector<const void*> rows;
        for (size_t i = 0; i < num_rows; ++i) {
          values.push_back((at::randn({numel}) * 100).to(dtype));
          rows.push_back(values.back().data_ptr());
        }
        const auto output_dtype = dtype == at::kLong || dtype == at::kDouble ? dtype : at::kFloat;
        const auto before = (at::randn({numel}) * 10).to(output_dtype);
        const bool adds = op == ReduceOp::average;
        auto expected = before.clone();
        comm::ordered_sum(expected.data_ptr(), output_dtype, rows, dtype, numel,
                          {.op = op, .accumulate = adds});
        const auto found = run_in_orders([&] {
          const Output output(before);
          const comm::RowSum sum{.output = output.data(),
                                 .output_dtype = output_dtype,
                                 .rows = rows,
                                 .rows_dtype = dtype,
                                 .numel = numel,
                                 .op = op,
                                 .divisor = adds ? static_cast<int64_t>(num_rows) : 1,
                                 .addend = adds ? output.data() : nullptr};
          EXPECT_TRUE(comm::device_sum(sum, kNoStream));
          return Outputs{output};
        });
        EXPECT_TRUE(at::equal(found[0], expected));
      }
    }
  }
}

}  // namespace
}  // namespace fullshard::emulation
