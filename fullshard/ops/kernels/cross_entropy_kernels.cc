// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/kernels/cross_entropy_kernels.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "fullshard/base/vectorised.h"
#include "fullshard/ops/kernels/lane_sum.h"
#include "fullshard/ops/kernels/stored_types.h"
#include "fullshard/ops/kernels/vector_exp.h"

namespace fullshard::ops {
namespace {

template <class Stored>
FULLSHARD_VECTORISED float largest(const Stored* __restrict row, int64_t numel) {
  float lanes[kSumLanes];
  for (int64_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] = widened(row[0]);
  int64_t i = 0;
  for (; i + kSumLanes <= numel; i += kSumLanes) {
    for (int64_t lane = 0; lane < kSumLanes; ++lane) {
      const float value = widened(row[i + lane]);
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  }
  for (int64_t lane = 0; i < numel; ++i, ++lane)
    lanes[lane] = std::max(lanes[lane], widened(row[i]));
  return *std::max_element(lanes, lanes + kSumLanes);
}

template <class Stored>
FULLSHARD_VECTORISED float sum(const Stored* __restrict row, int64_t numel) {
  return lane_sum(
      numel, [&](int64_t i) __attribute__((always_inline)) { return widened(row[i]); });
}

template <class Stored>
FULLSHARD_VECTORISED float sum_of_exponentials(const Stored* __restrict row, int64_t numel,
                                               float shift) {
  return lane_sum(
      numel, [&](int64_t i)
                 __attribute__((always_inline)) { return vector_exp(widened(row[i]) - shift); });
}

// As above, leaving the exponentials in the row.
FULLSHARD_VECTORISED float exponentials(float* __restrict row, int64_t numel, float shift) {
  return lane_sum(
      numel, [&](int64_t i) __attribute__((always_inline)) {
        const float value = vector_exp(row[i] - shift);
        row[i] = value;
        return value;
      });
}

FULLSHARD_VECTORISED void scale_and_lower(float* __restrict row, int64_t numel, float factor,
                                          float uniform) {
  for (int64_t i = 0; i < numel; ++i) row[i] = row[i] * factor - uniform;
}

// bf16 cannot hold the exponentials in between: they are computed twice.
FULLSHARD_VECTORISED void softmax_lowered(Brain* __restrict row, int64_t numel, float shift,
                                          float factor, float uniform) {
  for (int64_t i = 0; i < numel; ++i) {
    const float value = vector_exp(widened(row[i]) - shift);
    row[i] = narrowed<Brain>(value * factor - uniform);
  }
}

template <class Stored>
float one_row(Stored* row, int64_t label, int64_t vocabulary, float smoothing,
              bool wants_gradient) {
  constexpr bool kIsWide = std::is_same_v<Stored, float>;
  const float at_label = widened(row[label]);
  const float shift = largest(row, vocabulary);
  const auto width = static_cast<float>(vocabulary);
  const float mean = smoothing > 0 ? sum(row, vocabulary) / width : 0.0f;
  float total;
  if constexpr (kIsWide) {
    total = wants_gradient ? exponentials(row, vocabulary, shift)
                           : sum_of_exponentials(row, vocabulary, shift);
  } else {
    total = sum_of_exponentials(row, vocabulary, shift);
  }
  // log(total) + shift - at_label, with the large numbers taken from each other first.
  const float logarithm = std::log(total);
  const float loss = logarithm + (shift - at_label);
  if (wants_gradient) {
    const float factor = 1.0f / total, uniform = smoothing / width;
    // The label's own element from the unrounded softmax.
    const float share = vector_exp(at_label - shift) * factor;
    if constexpr (kIsWide) {
      scale_and_lower(row, vocabulary, factor, uniform);
    } else {
      softmax_lowered(row, vocabulary, shift, factor, uniform);
    }
    row[label] = narrowed<Stored>(share - (1.0f - smoothing) - uniform);
  }
  if (smoothing == 0) return loss;
  return (1.0f - smoothing) * loss + smoothing * (logarithm + (shift - mean));
}

}  // namespace

template <class Stored>
void cross_entropy_rows(Stored* logits, float* losses, const int64_t* labels, int64_t num_rows,
                        int64_t vocabulary, const LabelTerms& terms, bool wants_gradient) {
  for (int64_t i = 0; i < num_rows; ++i) {
    Stored* row = logits + i * vocabulary;
    if (labels[i] == terms.ignore_index) {
      losses[i] = 0;
      if (wants_gradient) std::fill_n(row, vocabulary, Stored{});
    } else {
      losses[i] = one_row(row, labels[i], vocabulary, terms.smoothing, wants_gradient);
    }
  }
}

template void cross_entropy_rows(float*, float*, const int64_t*, int64_t, int64_t,
                                 const LabelTerms&, bool);
template void cross_entropy_rows(Brain*, float*, const int64_t*, int64_t, int64_t,
                                 const LabelTerms&, bool);

}  // namespace fullshard::ops
