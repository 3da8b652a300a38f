// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/ordered_sum.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/ordered_sum_kernels.h"
#include "fullshard/comm/streamed_kernels.h"

namespace fullshard::comm {
namespace {

// One block of sums is 8 KiB of fp32: two of them and the rows in flight stay in the first cache.
constexpr int64_t kBlock = 2048;
constexpr int64_t kGrainBytes = 256 * kKiB;

template <class Sum>
struct Job {
  std::span<const void* const> rows;
  ReduceOp op;
  bool accumulate;
  std::span<const int> rows_per_host;
  bool is_large;  // the result would push everything else out of the caches
  Sum scale;
};

template <class Sum, class Row>
void fold_row(ReduceOp op, Sum* sum, const Row* row, int64_t numel) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return kernels::add_row(sum, row, numel);
    case ReduceOp::max:
      return kernels::max_row(sum, row, numel);
    case ReduceOp::min:
      return kernels::min_row(sum, row, numel);
  }
}

template <class Sum, class Row>
void fold_rows(const Job<Sum>& job, size_t first, size_t end, Sum* sum, int64_t begin,
               int64_t numel) {
  kernels::first_row(sum, static_cast<const Row*>(job.rows[first]) + begin, numel);
  for (size_t row = first + 1; row < end; ++row) {
    fold_row(job.op, sum, static_cast<const Row*>(job.rows[row]) + begin, numel);
  }
}

template <class Sum, class Row>
void fold_hosts(const Job<Sum>& job, Sum* sum, int64_t begin, int64_t numel) {
  if (job.rows_per_host.size() <= 1) {
    return fold_rows<Sum, Row>(job, 0, job.rows.size(), sum, begin, numel);
  }
  alignas(64) Sum of_host[kBlock];
  size_t row = 0;
  for (const int count : job.rows_per_host) {
    const size_t end = row + count;
    if (row == 0) {
      fold_rows<Sum, Row>(job, row, end, sum, begin, numel);
    } else {
      fold_rows<Sum, Row>(job, row, end, of_host, begin, numel);
      fold_row(job.op, sum, of_host, numel);
    }
    row = end;
  }
}

template <class Output, class Sum, class Row>
void reduce_range(Output* output, const Job<Sum>& job, int64_t begin, int64_t end) {
  if constexpr (std::is_same_v<Output, float> && std::is_same_v<Row, float>) {
    const bool plain = !job.accumulate && job.rows_per_host.size() <= 1 &&
                       (job.op == ReduceOp::sum || job.op == ReduceOp::average);
    const auto row = [&](size_t i) { return static_cast<const float*>(job.rows[i]) + begin; };
    if (plain && job.rows.size() == 2) {
      const bool is_in_place = output == job.rows[0] || output == job.rows[1];
      if (job.is_large && !is_in_place) {
        return kernels::streamed_sum_of_two(output + begin, row(0), row(1), job.scale, end - begin);
      }
      return kernels::sum_of_two(output + begin, row(0), row(1), job.scale, end - begin);
    }
    if (plain && job.rows.size() == 4) {
      const float* rows[] = {row(0), row(1), row(2), row(3)};
      return kernels::sum_of_four(output + begin, rows, job.scale, end - begin);
    }
  }
  alignas(64) Sum sum[kBlock];
  for (; begin < end; begin += kBlock) {
    const int64_t numel = std::min(kBlock, end - begin);
    fold_hosts<Sum, Row>(job, sum, begin, numel);
    if (job.accumulate) {
      kernels::write_added(output + begin, sum, job.scale, numel);
    } else {
      kernels::write(output + begin, sum, job.scale, numel);
    }
  }
}

template <class Output, class Sum, class Row>
void reduce(void* output, std::span<const void* const> rows, int64_t numel,
            const OrderedSum& options) {
  const bool is_large = numel * static_cast<int64_t>(sizeof(Output)) >= kernels::kStreamedBytes;
  Job<Sum> job{rows, options.op, options.accumulate, options.rows_per_host, is_large, Sum{1}};
  // Multiplying by one changes no bits, so a sum is an average with another factor.
  if constexpr (!std::is_integral_v<Sum>) {
    const auto divisor = options.divisor > 0 ? options.divisor : static_cast<int64_t>(rows.size());
    if (options.op == ReduceOp::average) job.scale = Sum(1.0 / static_cast<double>(divisor));
  }
  const int64_t grain = kGrainBytes / static_cast<int64_t>(sizeof(Row));
  at::parallel_for(0, numel, grain, [&](int64_t begin, int64_t end) {
    reduce_range<Output, Sum, Row>(static_cast<Output*>(output), job, begin, end);
  });
}

template <class Sum, class Row>
void reduce_to(void* output, at::ScalarType output_dtype, std::span<const void* const> rows,
               int64_t numel, const OrderedSum& options) {
  if constexpr (std::is_integral_v<Sum>) {
    check(output_dtype == at::kLong, "ordered sum: the output is {}, expected int64 as the rows",
          c10::toString(output_dtype));
    return reduce<int64_t, int64_t, int64_t>(output, rows, numel, options);
  } else {
    switch (output_dtype) {
      case at::kFloat:
        return reduce<float, Sum, Row>(output, rows, numel, options);
      case at::kBFloat16:
        return reduce<c10::BFloat16, Sum, Row>(output, rows, numel, options);
      case at::kHalf:
        return reduce<c10::Half, Sum, Row>(output, rows, numel, options);
      case at::kDouble:
        return reduce<double, Sum, Row>(output, rows, numel, options);
      default:
        fail("ordered sum: the output is {}, expected fp32, bf16, fp16 or fp64",
             c10::toString(output_dtype));
    }
  }
}

void check_options(size_t num_rows, at::ScalarType dtype, const OrderedSum& options) {
  check(num_rows > 0, "ordered sum: there are no rows");
  check(dtype != at::kLong || options.op != ReduceOp::average,
        "ordered sum: int64 has no average; ask for the sum and divide it");
  const auto& hosts = options.rows_per_host;
  const auto total = std::accumulate(hosts.begin(), hosts.end(), size_t{0});
  const bool has_empty_host = std::any_of(hosts.begin(), hosts.end(), [](int n) { return n < 1; });
  check(hosts.empty() || (total == num_rows && !has_empty_host),
        "ordered sum: the hosts hold {} rows together, expected {} and none without rows", total,
        num_rows);
}

}  // namespace

at::ScalarType sum_dtype(at::ScalarType rows) {
  return rows == at::kDouble || rows == at::kLong ? rows : at::kFloat;
}

void ordered_sum(void* output, at::ScalarType output_dtype, std::span<const void* const> rows,
                 at::ScalarType rows_dtype, int64_t numel, const OrderedSum& options) {
  check_options(rows.size(), rows_dtype, options);
  switch (rows_dtype) {
    case at::kFloat:
      return reduce_to<float, float>(output, output_dtype, rows, numel, options);
    case at::kBFloat16:
      return reduce_to<float, c10::BFloat16>(output, output_dtype, rows, numel, options);
    case at::kHalf:
      return reduce_to<float, c10::Half>(output, output_dtype, rows, numel, options);
    case at::kDouble:
      return reduce_to<double, double>(output, output_dtype, rows, numel, options);
    case at::kLong:
      return reduce_to<int64_t, int64_t>(output, output_dtype, rows, numel, options);
    default:
      fail("ordered sum: rows are {}, expected fp32, bf16, fp16, fp64 or int64",
           c10::toString(rows_dtype));
  }
}

}  // namespace fullshard::comm
