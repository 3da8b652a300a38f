// SPDX-License-Identifier: Apache-2.0
// The one expression by which gradients are reduced, whatever carries them: ranks in ascending
// order within their host, then the hosts in order, then one multiplication, then the old value.
// An element's bits depend on its inputs alone, never on how a range is cut or vectorised.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "fullshard/comm/communicator.h"

namespace fullshard::comm {

struct OrderedSum {
  ReduceOp op = ReduceOp::sum;  // average: the sum times float(1 / divisor)
  // output = old output + result, instead of output = result.
  bool accumulate = false;
  // How many of the rows each host holds, in order; empty means one host. Only sums care.
  std::span<const int> rows_per_host = {};
  int64_t divisor = 0;  // 0: the number of rows; more where rows are sums themselves
};

// The dtype in which rows are added: fp32 for fp32, bf16 and fp16; fp64 and int64 themselves.
at::ScalarType sum_dtype(at::ScalarType rows);

// Reduces rows[0..N) of `numel` elements each. Rows are fp32, bf16, fp16, fp64 or int64; the output
// has their dtype or, if that is floating, any other of the floating ones. The output may be one of
// the rows when the dtypes agree. Runs on this thread and torch's intra-op threads.
void ordered_sum(void* output, at::ScalarType output_dtype, std::span<const void* const> rows,
                 at::ScalarType rows_dtype, int64_t numel, const OrderedSum& options);

}  // namespace fullshard::comm
