// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/kernels/one_bit_kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "fullshard/base/lines.h"
#include "fullshard/base/vectorised.h"
#include "fullshard/optim/kernels/element_blocks.h"

namespace fullshard::optim {
namespace {

template <class Real>
struct Constants {
  explicit Constants(const MomentumStep& step)
      : clip(static_cast<Real>(step.clip)),
        beta1(static_cast<Real>(step.beta1)),
        to_moment(static_cast<Real>(1 - step.beta1)) {}

  Real clip, beta1, to_moment;
};

template <class Real>
[[gnu::always_inline]] inline Real momentum(const Constants<Real>& c, Real moment, Real gradient) {
  return moment * c.beta1 + gradient * c.clip * c.to_moment;
}

// A fixed number of lanes whatever the instruction set, so that the bits are the same on all.
[[gnu::always_inline]] inline double squares(const float* values, int64_t numel) {
  double lanes[base::kLineElements] = {};
  int64_t i = 0;
  for (; i + base::kLineElements <= numel; i += base::kLineElements) {
    for (int64_t lane = 0; lane < base::kLineElements; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < numel; ++i)
    lanes[i % base::kLineElements] += static_cast<double>(values[i]) * values[i];
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

template <class Real>
FULLSHARD_VECTORISED void momentum_block(const MomentumStep& step, const Real* __restrict g,
                                         Real* __restrict m, int64_t numel) {
  const Constants<Real> c(step);
  for (int64_t i = 0; i < numel; ++i) m[i] = momentum(c, m[i], g[i]);
}

FULLSHARD_VECTORISED
double add_momentum_block(const MomentumStep& step, const float* __restrict g,
                          const float* __restrict m, float* __restrict error, int64_t numel) {
  const Constants<float> c(step);
  for (int64_t i = 0; i < numel; ++i) error[i] += momentum(c, m[i], g[i]);
  return squares(error, numel);
}

FULLSHARD_VECTORISED double squares_block(const float* values, int64_t numel) {
  return squares(values, numel);
}

[[gnu::always_inline]] inline float signed_scale(const SignedRow& row, int64_t element) {
  const bool is_positive = row.signs[element / kSignsPerByte] >> (element % kSignsPerByte) & 1;
  return is_positive ? row.scale : -row.scale;
}

FULLSHARD_VECTORISED
void add_row(const SignedRow& row, float* __restrict sums, int64_t first, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) sums[i] += signed_scale(row, first + i);
}

FULLSHARD_VECTORISED
double add_sums(const float* __restrict sums, float* __restrict error, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) error[i] += sums[i];
  return squares(error, numel);
}

FULLSHARD_VECTORISED
void take_signs_block(uint8_t* __restrict signs, float scale, float* __restrict values,
                      int64_t numel) {
  for (int64_t i = 0; i < numel; i += kSignsPerByte) {
    unsigned byte = 0;
    for (int64_t bit = 0; bit < kSignsPerByte; ++bit) {
      const bool is_negative = values[i + bit] < 0;
      values[i + bit] -= is_negative ? -scale : scale;
      byte |= static_cast<unsigned>(!is_negative) << bit;
    }
    signs[i / kSignsPerByte] = static_cast<uint8_t>(byte);
  }
}

FULLSHARD_VECTORISED
void spread_block(const SignedRow& row, float* __restrict values, int64_t first, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) values[i] = signed_scale(row, first + i);
}

// Calls use(block, begin, numel) for blocks that begin at multiples of kBlockNumel.
template <class Use>
void for_each_block(int64_t numel, const Use& use) {
  const int64_t num_blocks = (numel + kBlockNumel - 1) / kBlockNumel;
  at::parallel_for(0, num_blocks, kBlocksPerThread, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kBlockNumel;
      use(block, begin, std::min(kBlockNumel, numel - begin));
    }
  });
}

// The sum of use(begin, numel) over the blocks, added in their order.
template <class Use>
double sum_of_blocks(int64_t numel, const Use& use) {
  std::vector<double> sums((numel + kBlockNumel - 1) / kBlockNumel);
  for_each_block(numel, [&](int64_t block, int64_t begin, int64_t block_numel) {
    sums[block] = use(begin, block_numel);
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

const float* widened(const Elements& elements, int64_t begin, float* stage, int64_t numel) {
  return detail::in_place_or_staged(elements.from(begin), stage, numel);
}

}  // namespace

void momentum_step(const MomentumStep& step, const PieceElements& piece) {
  auto states_only = piece;
  states_only.writes_master = false;
  states_only.states[1] = {};
  update_elements(states_only, [&](const auto& block) {
    momentum_block(step, block.gradient, block.states[0], block.numel);
  });
}

double add_momentum(const MomentumStep& step, const Elements& gradient, const Elements& exp_avg,
                    float* error, int64_t numel) {
  return sum_of_blocks(numel, [&](int64_t begin, int64_t block_numel) {
    float stages[2][kBlockNumel];
    const auto* g = widened(gradient, begin, stages[0], block_numel);
    const auto* m = widened(exp_avg, begin, stages[1], block_numel);
    return add_momentum_block(step, g, m, error + begin, block_numel);
  });
}

double sum_of_error_squares(const float* values, int64_t numel) {
  return sum_of_blocks(numel, [&](int64_t begin, int64_t block_numel) {
    return squares_block(values + begin, block_numel);
  });
}

double add_signed_rows(std::span<const SignedRow> rows, float* error, int64_t numel) {
  return sum_of_blocks(numel, [&](int64_t begin, int64_t block_numel) {
    float sums[kBlockNumel] = {};
    for (const auto& row : rows) add_row(row, sums, begin, block_numel);
    return add_sums(sums, error + begin, block_numel);
  });
}

void take_signs(uint8_t* signs, float scale, float* values, int64_t numel) {
  for_each_block(numel, [&](int64_t, int64_t begin, int64_t block_numel) {
    take_signs_block(signs + begin / kSignsPerByte, scale, values + begin, block_numel);
  });
}

void spread_signs(const Elements& values, const SignedRow& row, int64_t numel) {
  for_each_block(numel, [&](int64_t, int64_t begin, int64_t block_numel) {
    float stage[kBlockNumel];
    spread_block(row, stage, begin, block_numel);
    store(values.from(begin), stage, block_numel);
  });
}

}  // namespace fullshard::optim
