// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/column_sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fullshard/ops/cuda/partial_rows.h"
#include "tests/emulated_cuda/kernel_run.h"

namespace fullshard::emulation {
namespace {

// Of one sign: what cancels would leave only the rounding to compare.
at::Tensor positive(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randn(sizes).abs().to(dtype);
}

TEST(EmulatedColumnSums, AreTheSums) {
  for (const auto dtype : kKernelDtypes) {
    for (const int64_t width : {1, 8, 300}) {
      for (const int64_t rows : {1, 700}) {
        for (const int64_t room : {0, 5, 8}) {  // between the rows
          SCOPED_TRACE(::testing::Message()
                       << rows << " rows of " << width << " " << dtype << ", " << room << " apart");
          const auto whole = positive({rows, width + room}, dtype);
          const auto matrix = whole.narrow(1, 0, width);
          const auto before = positive({width}, at::kFloat);
          const auto found = run_in_orders([&] {
            const int64_t num_partials = ops::num_partial_rows(rows, width, kernel_dtype(dtype));
            const Output partials({num_partials, width}, at::kFloat);
            const Output written({width}, at::kFloat), added(before);
            for (const auto* sums : {&written, &added}) {
              ops::column_sums(sums->data<float>(), sums == &added, matrix.data_ptr(),
                               kernel_dtype(dtype), rows, width, width + room,
                               partials.data<float>(), kNoStream);
            }
            return Outputs{written, added};
          });
          const auto sums = matrix.to(at::kDouble).sum(0);
          expect_near(found[0], sums, 1e-6, "written");
          expect_near(found[1], sums + before, 1e-6, "added");
        }
      }
    }
  }
}

TEST(EmulatedColumnSums, EndPartialRowsOfTwoKindsInOneLaunch) {
  const int64_t rows = 40, width = 50;
  const auto first = positive({rows, width}, at::kFloat), second = first * 3;
  const auto before = positive({width}, at::kFloat);
  const auto found = run_in_orders([&] {
    const Output one({width}, at::kFloat), other(before), alone({width}, at::kFloat);
    const ops::PartialRows of_first{one.data<float>(), false, first.data_ptr<float>()};
    const ops::PartialRows of_second{other.data<float>(), true, second.data_ptr<float>()};
    ops::sum_partials(of_first, of_second, rows, width, kNoStream);
    ops::sum_partials({}, {alone.data<float>(), false, second.data_ptr<float>()}, rows, width,
                      kNoStream);
    ops::sum_partials({}, {}, rows, width, kNoStream);
    return Outputs{one, other, alone};
  });
  expect_near(found[0], first.sum(0, false, at::kDouble), 1e-6, "the first");
  expect_near(found[1], second.sum(0, false, at::kDouble) + before, 1e-6, "the second, added");
  expect_near(found[2], second.sum(0, false, at::kDouble), 1e-6, "the second alone");
}

}  // namespace
}  // namespace fullshard::emulation
