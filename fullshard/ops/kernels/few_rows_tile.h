// SPDX-License-Identifier: Apache-2.0
// A tile of a product with few rows of inputs: some rows of the weight times some inputs, with all
// sums in registers. Written once for vectors of any width; a sum has sixteen lanes whatever that
// width is, which are folded in one order, so the bits are the same.
#pragma once

#include <cstdint>

#include "fullshard/ops/kernels/few_rows_kernels.h"
#include "fullshard/ops/kernels/stored_types.h"
#include "fullshard/ops/kernels/vector_lanes.h"

namespace fullshard::ops {

// How far before its use a weight is asked for: the hardware's own prefetching stops at pages.
inline constexpr int64_t kPrefetchBytes = 512;
// Inputs that are packed side by side; no tile has more, and none crosses such a group.
inline constexpr int64_t kPackedInputs = 8;

// What an instruction set has: `lanes` in a register, so many registers, and as many inputs as are
// worth a tile.
template <int lanes_, int registers_, int most_inputs_>
struct TileShape {
  static constexpr int lanes = lanes_;
  static constexpr int parts = kLanes / lanes_;
  static constexpr int most_inputs = most_inputs_;
  // Sums, a weight of every row, an input and a product stay in registers. Rows beside each other
  // are streams of their own for the memory; more than eight gain nothing.
  static constexpr int rows_with(int inputs) {
    const int rows = (registers_ - 2) / (inputs * parts + 1);
    return rows < 1 ? 1 : (rows > 8 ? 8 : rows);
  }
};

// The compiler's vectors of so many numbers; it wants their widths as plain numbers. `fold` adds
// halves of sixteen lanes to halves until one number is left. By reference: how a vector is passed
// depends on the instruction set.
template <int lanes>
struct TileTypes;
template <>
struct TileTypes<4> {
  typedef float Value __attribute__((vector_size(16)));
  typedef float Unaligned __attribute__((vector_size(16), aligned(4), may_alias));
  typedef uint16_t Halves __attribute__((vector_size(8), aligned(2), may_alias));
  typedef uint32_t Bits __attribute__((vector_size(16)));
  [[gnu::always_inline]] static float fold(const Value* parts) {
    const Value four = (parts[0] + parts[2]) + (parts[1] + parts[3]);
    const Value two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
    return two[0] + two[1];
  }
};
template <>
struct TileTypes<8> {
  typedef float Value __attribute__((vector_size(32)));
  typedef float Unaligned __attribute__((vector_size(32), aligned(4), may_alias));
  typedef uint16_t Halves __attribute__((vector_size(16), aligned(2), may_alias));
  typedef uint32_t Bits __attribute__((vector_size(32)));
  [[gnu::always_inline]] static float fold(const Value* parts) {
    const Value eight = parts[0] + parts[1];
    const Value four = eight + __builtin_shufflevector(eight, eight, 4, 5, 6, 7, 0, 1, 2, 3);
    const Value two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1, 6, 7, 4, 5);
    return two[0] + two[1];
  }
};
template <>
struct TileTypes<16> {
  typedef Lanes Value;
  typedef StoredLanes Unaligned;
  typedef uint16_t Halves __attribute__((vector_size(32), aligned(2), may_alias));
  typedef uint32_t Bits __attribute__((vector_size(64)));
  [[gnu::always_inline]] static float fold(const Value* parts) { return folded(parts[0]); }
};

template <class Types>
[[gnu::always_inline]] inline void load_vector(typename Types::Value& to, const float* from) {
  to = *reinterpret_cast<const typename Types::Unaligned*>(from);
}
template <class Types>
[[gnu::always_inline]] inline void load_vector(typename Types::Value& to, const Brain* from) {
  using Bits = typename Types::Bits;
  const Bits wide =
      __builtin_convertvector(*reinterpret_cast<const typename Types::Halves*>(from), Bits);
  to = reinterpret_cast<typename Types::Value>(wide << 16);
}

// Where a tile begins, and how far apart its rows of the weight are.
struct TilePlace {
  int64_t row = 0;
  int64_t row_stride = 1;
  int64_t first_input = 0;
};

// Where the vectors of an input begin in the packed inputs, and how far apart they are.
struct PackedPlace {
  int64_t begin = 0;
  int64_t stride = 0;
};

inline PackedPlace packed_place(int64_t input, int64_t num_inputs, int64_t width) {
  const int64_t group = input / kPackedInputs * kPackedInputs;
  const int64_t in_group = num_inputs - group < kPackedInputs ? num_inputs - group : kPackedInputs;
  const int64_t full = width / kLanes * kLanes;
  return {.begin = group * full + (input - group) * kLanes, .stride = in_group * kLanes};
}

// Adds to the sums of a tile, [rows][inputs], what is left of the rows behind the last full vector,
// bias and residual, and writes the outputs.
template <class Stored>
void finish_tile(const FewRowsProduct<Stored>& product, const TilePlace& place, int rows,
                 int inputs, const float* sums);

template <class Shape, int rows, int inputs, class Stored>
[[gnu::always_inline]] inline void multiply_tile(const FewRowsProduct<Stored>& product,
                                                 const TilePlace& place) {
  using Types = TileTypes<Shape::lanes>;
  using Value = typename Types::Value;
  Value sums[rows][inputs][Shape::parts] = {};
  const Stored* weight = product.weight + place.row * product.width;
  const int64_t next_row = place.row_stride * product.width;
  const PackedPlace packed = packed_place(place.first_input, product.num_inputs, product.width);
  const float* values = product.packed + packed.begin;
  for (int64_t k = 0; k + kLanes <= product.width; k += kLanes, values += packed.stride) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      __builtin_prefetch(reinterpret_cast<const char*>(weight + r * next_row + k) + kPrefetchBytes);
    }
#pragma GCC unroll 4
    for (int part = 0; part < Shape::parts; ++part) {
      Value weights[rows];
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        load_vector<Types>(weights[r], weight + r * next_row + k + part * Shape::lanes);
      }
#pragma GCC unroll 8
      for (int i = 0; i < inputs; ++i) {
        Value value;
        load_vector<Types>(value, values + i * kLanes + part * Shape::lanes);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) sums[r][i][part] += weights[r] * value;
      }
    }
  }
  float folded_sums[rows * inputs];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < inputs; ++i) {
      folded_sums[r * inputs + i] = Types::fold(sums[r][i]);
    }
  }
  finish_tile(product, place, rows, inputs, folded_sums);
}

// The last inputs, fewer than Shape::most_inputs.
template <class Shape, int rows, int inputs, class Stored>
[[gnu::always_inline]] inline void multiply_last(const FewRowsProduct<Stored>& product,
                                                 const TilePlace& place, int64_t left) {
  if constexpr (inputs > 0) {
    if (left == inputs) return multiply_tile<Shape, rows, inputs>(product, place);
    multiply_last<Shape, rows, inputs - 1>(product, place, left);
  }
}

// All inputs for the rows of one tile. Where there are more than fit, the rows come from memory
// for the first ones and from the cache for the others.
template <class Shape, int rows, int inputs, class Stored>
[[gnu::always_inline]] inline void multiply_rows(const FewRowsProduct<Stored>& product,
                                                 TilePlace place) {
  if constexpr (inputs < Shape::most_inputs) {
    multiply_tile<Shape, rows, inputs>(product, place);
  } else {
    for (int64_t group = 0; group < product.num_inputs; group += kPackedInputs) {
      const int64_t end =
          group + kPackedInputs < product.num_inputs ? group + kPackedInputs : product.num_inputs;
      for (place.first_input = group; place.first_input + inputs <= end;
           place.first_input += inputs) {
        multiply_tile<Shape, rows, inputs>(product, place);
      }
      multiply_last<Shape, rows, inputs - 1>(product, place, end - place.first_input);
    }
  }
}

// Rows of a tile lie a part of the range apart, so that the memory sees a few long streams.
template <class Shape, int rows, int inputs, class Stored>
[[gnu::always_inline]] inline void multiply_range(const FewRowsProduct<Stored>& product,
                                                  int64_t begin, int64_t end) {
  const int64_t apart = (end - begin) / rows;
  for (int64_t row = begin; row < begin + apart; ++row) {
    multiply_rows<Shape, rows, inputs>(product, {.row = row, .row_stride = apart});
  }
  for (int64_t row = begin + apart * rows; row < end; ++row) {
    multiply_rows<Shape, 1, inputs>(product, {.row = row});
  }
}

// The fewer inputs, the more registers are left for rows.
template <class Shape, int inputs, class Stored>
[[gnu::always_inline]] inline void multiply_with(const FewRowsProduct<Stored>& product,
                                                 int64_t begin, int64_t end) {
  if constexpr (inputs < Shape::most_inputs) {
    if (product.num_inputs > inputs) {
      return multiply_with<Shape, inputs + 1>(product, begin, end);
    }
  }
  multiply_range<Shape, Shape::rows_with(inputs), inputs>(product, begin, end);
}

}  // namespace fullshard::ops
