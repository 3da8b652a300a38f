// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/segment_sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fullshard/ops/cuda/partial_rows.h"
#include "tests/emulated_cuda/kernel_run.h"

namespace fullshard::emulation {
namespace {

at::Tensor added_to(const at::Tensor& table, const at::Tensor& indices, const at::Tensor& rows,
                    int64_t skipped) {
  const auto factors = indices.ne(skipped).to(at::kDouble).unsqueeze(1);
  return table.to(at::kDouble).index_add(0, indices, rows.to(at::kDouble) * factors);
}

// One index over many chunks, as the most frequent token has it, beside rare ones.
TEST(EmulatedSegments, AddRowsToTheRowsThatTheirIndicesName) {
  const int64_t vocabulary = 9;
  for (const auto dtype : kKernelDtypes) {
    for (const int64_t width : {1, 7, 16, 520}) {
      for (const int64_t num_rows : {1, 31, 32, 33, 64, 300}) {
        for (const int64_t skipped : {-1, 4}) {
          SCOPED_TRACE(::testing::Message() << num_rows << " rows of " << width << " " << dtype
                                            << ", skipped " << skipped);
          auto indices = at::randint(vocabulary, {num_rows}, at::kLong);
          indices.masked_fill_(at::rand({num_rows}) < 0.5, 4);
          const auto [sorted, order] = indices.sort(std::optional<bool>(true), 0, false);
          const auto rows = at::randn({num_rows, width}).to(dtype);
          const auto table = at::randn({vocabulary, width});
          const auto found = run_in_orders([&, sorted = sorted, order = order] {
            const Output own(table);
            const Output partials({2, ops::num_segment_chunks(num_rows), width}, at::kFloat);
            ops::add_segments({.dtype = kernel_dtype(dtype),
                               .table = own.data<float>(),
                               .rows = rows.data_ptr(),
                               .sorted = sorted.data_ptr<int64_t>(),
                               .order = order.data_ptr<int64_t>(),
                               .num_rows = num_rows,
                               .width = width,
                               .skipped = skipped,
                               .partials = partials.data<float>()},
                              kNoStream);
            return Outputs{own};
          });
          expect_near(found[0], added_to(table, indices, rows, skipped), 1e-6, "table");
        }
      }
    }
  }
}

}  // namespace
}  // namespace fullshard::emulation
