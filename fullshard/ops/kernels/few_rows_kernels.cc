// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/kernels/few_rows_kernels.h"

#include "fullshard/base/vectorised.h"
#include "fullshard/ops/kernels/few_rows_tile.h"

namespace fullshard::ops {
namespace {

#if defined(__aarch64__)
using PlainTile = TileShape<4, 32, 3>;
#else
using PlainTile = TileShape<4, 16, 3>;
#endif
using Avx2Tile = TileShape<8, 16, 3>;
using Avx512Tile = TileShape<16, 32, 8>;

template <class Stored>
float sum_of_rest(const FewRowsProduct<Stored>& product, int64_t row, int64_t input) {
  const int64_t done = product.width / kLanes * kLanes, left = product.width - done;
  const Stored* weight = product.weight + row * product.width + done;
  const float* values = product.packed + done * product.num_inputs + input * left;
  float sum = 0;
  for (int64_t i = 0; i < left; ++i) sum += widened(weight[i]) * values[i];
  return sum;
}

template <class Stored>
void multiply_plain(const FewRowsProduct<Stored>& product, int64_t begin, int64_t end) {
  multiply_with<PlainTile, 1>(product, begin, end);
}

#if FULLSHARD_HAS_X86_SETS
template <class Stored>
FULLSHARD_VECTORISED_AVX2 void multiply_avx2(const FewRowsProduct<Stored>& product, int64_t begin,
                                             int64_t end) {
  multiply_with<Avx2Tile, 1>(product, begin, end);
}

template <class Stored>
FULLSHARD_VECTORISED_AVX512 void multiply_avx512(const FewRowsProduct<Stored>& product,
                                                 int64_t begin, int64_t end) {
  multiply_with<Avx512Tile, 1>(product, begin, end);
}
#endif

InstructionSet asked_of_processor() {
#if FULLSHARD_HAS_X86_SETS
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::avx512;
  }
  if (__builtin_cpu_supports("avx2")) return InstructionSet::avx2;
#endif
  return InstructionSet::plain;
}

}  // namespace

InstructionSet best_instruction_set() {
  static const InstructionSet best = asked_of_processor();
  return best;
}

template <class Stored>
void finish_tile(const FewRowsProduct<Stored>& product, const TilePlace& place, int rows,
                 int inputs, const float* sums) {
  const bool has_rest = product.width % kLanes != 0;
  for (int r = 0; r < rows; ++r) {
    const int64_t row = place.row + r * place.row_stride;
    const float bias = product.bias == nullptr ? 0.0f : widened(product.bias[row]);
    for (int i = 0; i < inputs; ++i) {
      const int64_t input = place.first_input + i;
      const int64_t to = input * product.num_outputs + row;
      float sum = sums[r * inputs + i];
      if (has_rest) sum += sum_of_rest(product, row, input);
      sum += bias;
      if (product.residual != nullptr) sum += widened(product.residual[to]);
      product.output[to] = narrowed<Stored>(sum);
    }
  }
}

template <class Stored>
void pack_few_rows(float* packed, const Stored* inputs, int64_t num_inputs, int64_t width) {
  const int64_t full = width / kLanes * kLanes, left = width - full;
  for (int64_t input = 0; input < num_inputs; ++input) {
    const PackedPlace place = packed_place(input, num_inputs, width);
    const Stored* from = inputs + input * width;
    float* to = packed + place.begin;
    for (int64_t k = 0; k < full; k += kLanes, to += place.stride) {
      for (int64_t lane = 0; lane < kLanes; ++lane) to[lane] = widened(from[k + lane]);
    }
    float* rest = packed + num_inputs * full + input * left;
    for (int64_t i = 0; i < left; ++i) rest[i] = widened(from[full + i]);
  }
}

template <class Stored>
void multiply_few_rows_with(InstructionSet set, const FewRowsProduct<Stored>& product,
                            int64_t begin, int64_t end) {
#if FULLSHARD_HAS_X86_SETS
  if (set == InstructionSet::avx512) return multiply_avx512(product, begin, end);
  if (set == InstructionSet::avx2) return multiply_avx2(product, begin, end);
#else
  static_cast<void>(set);
#endif
  multiply_plain(product, begin, end);
}

template <class Stored>
void multiply_few_rows(const FewRowsProduct<Stored>& product, int64_t begin, int64_t end) {
  multiply_few_rows_with(best_instruction_set(), product, begin, end);
}

template void pack_few_rows(float*, const float*, int64_t, int64_t);
template void pack_few_rows(float*, const Brain*, int64_t, int64_t);
template void multiply_few_rows_with(InstructionSet, const FewRowsProduct<float>&, int64_t,
                                     int64_t);
template void multiply_few_rows_with(InstructionSet, const FewRowsProduct<Brain>&, int64_t,
                                     int64_t);
template void multiply_few_rows(const FewRowsProduct<float>&, int64_t, int64_t);
template void multiply_few_rows(const FewRowsProduct<Brain>&, int64_t, int64_t);

}  // namespace fullshard::ops
