// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/ordered_sum_kernels.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"

namespace fullshard::kernels {

template <class Sum, class Row>
FULLSHARD_VECTORISED void first_row(Sum* __restrict sum, const Row* __restrict row, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) sum[i] = static_cast<Sum>(row[i]);
}

template <class Sum, class Row>
FULLSHARD_VECTORISED void add_row(Sum* __restrict sum, const Row* __restrict row, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) sum[i] = sum[i] + static_cast<Sum>(row[i]);
}

template <class Sum, class Row>
FULLSHARD_VECTORISED void max_row(Sum* __restrict sum, const Row* __restrict row, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    const Sum value = static_cast<Sum>(row[i]);
    sum[i] = (value > sum[i] || value != value) ? value : sum[i];
  }
}

template <class Sum, class Row>
FULLSHARD_VECTORISED void min_row(Sum* __restrict sum, const Row* __restrict row, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    const Sum value = static_cast<Sum>(row[i]);
    sum[i] = (value < sum[i] || value != value) ? value : sum[i];
  }
}

template <class Output, class Sum>
FULLSHARD_VECTORISED void write(Output* __restrict output, const Sum* __restrict sum, Sum scale,
                                int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) output[i] = static_cast<Output>(sum[i] * scale);
}

template <class Output, class Sum>
FULLSHARD_VECTORISED void write_added(Output* __restrict output, const Sum* __restrict sum,
                                      Sum scale, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    output[i] = static_cast<Output>(static_cast<Sum>(output[i]) + sum[i] * scale);
  }
}

// Rows and output may be the same memory. A line is summed aside and then stored: otherwise g++ 12,
// which unrolls so short a loop first, would not dare to make vectors of it.
FULLSHARD_VECTORISED void sum_of_two(float* output, const float* a, const float* b, float scale,
                                     int64_t numel) {
  int64_t begin = 0;
  for (; begin + base::kLineElements <= numel; begin += base::kLineElements) {
    base::ask_for(begin, output, a, b);
    float line[base::kLineElements];
    for (int64_t i = 0; i < base::kLineElements; ++i)
      line[i] = (a[begin + i] + b[begin + i]) * scale;
    for (int64_t i = 0; i < base::kLineElements; ++i) output[begin + i] = line[i];
  }
  for (int64_t i = begin; i < numel; ++i) output[i] = (a[i] + b[i]) * scale;
}

FULLSHARD_VECTORISED void sum_of_four(float* output, const float* const* rows, float scale,
                                      int64_t numel) {
  const float *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
  int64_t begin = 0;
  for (; begin + base::kLineElements <= numel; begin += base::kLineElements) {
    base::ask_for(begin, output, a, b, c, d);
    float line[base::kLineElements];
    for (int64_t i = 0; i < base::kLineElements; ++i) {
      const int64_t element = begin + i;
      line[i] = (((a[element] + b[element]) + c[element]) + d[element]) * scale;
    }
    for (int64_t i = 0; i < base::kLineElements; ++i) output[begin + i] = line[i];
  }
  for (int64_t i = begin; i < numel; ++i) output[i] = (((a[i] + b[i]) + c[i]) + d[i]) * scale;
}

#define FULLSHARD_ROWS(SUM, ROW)                                \
  template void first_row<SUM, ROW>(SUM*, const ROW*, int64_t); \
  template void add_row<SUM, ROW>(SUM*, const ROW*, int64_t);   \
  template void max_row<SUM, ROW>(SUM*, const ROW*, int64_t);   \
  template void min_row<SUM, ROW>(SUM*, const ROW*, int64_t);
FULLSHARD_ROWS(float, float)
FULLSHARD_ROWS(float, c10::BFloat16)
FULLSHARD_ROWS(float, c10::Half)
FULLSHARD_ROWS(double, double)
FULLSHARD_ROWS(int64_t, int64_t)
#undef FULLSHARD_ROWS

#define FULLSHARD_WRITE(OUTPUT, SUM)                                   \
  template void write<OUTPUT, SUM>(OUTPUT*, const SUM*, SUM, int64_t); \
  template void write_added<OUTPUT, SUM>(OUTPUT*, const SUM*, SUM, int64_t);
FULLSHARD_WRITE(float, float)
FULLSHARD_WRITE(c10::BFloat16, float)
FULLSHARD_WRITE(c10::Half, float)
FULLSHARD_WRITE(double, float)
FULLSHARD_WRITE(float, double)
FULLSHARD_WRITE(c10::BFloat16, double)
FULLSHARD_WRITE(c10::Half, double)
FULLSHARD_WRITE(double, double)
FULLSHARD_WRITE(int64_t, int64_t)
#undef FULLSHARD_WRITE

}  // namespace fullshard::kernels
