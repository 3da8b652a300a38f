// SPDX-License-Identifier: Apache-2.0
// The one pass of an optimizer over a piece, in blocks that stay in the first-level cache.
//
// A rule sees a block in the type it computes in. Arrays of that type are given as they lie in
// memory; others are widened into a stage beside it and written back afterwards, so that they cost
// conversions in the cache and no second pass over memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "fullshard/optim/kernels/cast_kernels.h"
#include "fullshard/tensor/parallel.h"

namespace fullshard::optim {

constexpr int64_t kBlockNumel = 1024;
constexpr int64_t kBlocksPerThread = 64;  // fewer are not worth another thread

template <class Real>
struct ElementBlock {
  Real* master = nullptr;
  const Real* gradient = nullptr;
  std::array<Real*, kMaxStates> states{};
  // Where 16-bit values are to be shown, or else the master: worth asking for ahead, because the
  // writes at a block's end would all wait.
  const void* shown = nullptr;
  int64_t numel = 0;
  int64_t index = 0;  // of the block in its piece
};

namespace detail {

template <class Real>
constexpr c10::ScalarType kDtype =
    std::is_same_v<Real, double> ? c10::ScalarType::Double : c10::ScalarType::Float;

template <class Real>
struct Stage {
  alignas(64) Real rows[2 + kMaxStates][kBlockNumel];
};

template <class Real>
Real* in_place_or_staged(const Elements& elements, Real* stage, int64_t numel) {
  if (!elements) return nullptr;
  if (elements.dtype == kDtype<Real>) return static_cast<Real*>(elements.data);
  load(stage, elements, numel);
  return stage;
}

template <class Real>
Real* master_of(const PieceElements& piece, int64_t begin, Real* stage, int64_t numel) {
  if constexpr (std::is_same_v<Real, float>) {
    if (piece.lower != nullptr) {
      load_halves(stage, piece.shown.from(begin).data, piece.lower + begin, numel);
      return stage;
    }
  }
  return in_place_or_staged(piece.master.from(begin), stage, numel);
}

template <class Real>
void write_master(const PieceElements& piece, int64_t begin, Real* values, int64_t numel) {
  if constexpr (std::is_same_v<Real, float>) {
    if (piece.lower != nullptr) {
      return store_halves(piece.shown.from(begin).data, piece.lower + begin, values, numel);
    }
  }
  const auto master = piece.master.from(begin);
  if (master.dtype != kDtype<Real>) {
    if constexpr (std::is_same_v<Real, float>) {
      if (master.dtype == c10::ScalarType::BFloat16) {
        store_stochastically(master.data, values, numel, piece.rounding, piece.first + begin);
      } else {
        store(master, values, numel);
      }
    }
    if (piece.shown) load(values, master, numel);  // what is shown is the master's value
  }
  if (piece.shown) store(piece.shown.from(begin), values, numel);
}

template <class Real, class Rule>
void update_block(const PieceElements& piece, int64_t index, Stage<Real>& stage, const Rule& rule) {
  const int64_t begin = index * kBlockNumel;
  ElementBlock<Real> block;
  block.index = index;
  block.numel = std::min(kBlockNumel, piece.numel - begin);
  block.master = master_of(piece, begin, stage.rows[0], block.numel);
  block.gradient = in_place_or_staged(piece.gradient.from(begin), stage.rows[1], block.numel);
  for (int i = 0; i < kMaxStates; ++i) {
    block.states[i] =
        in_place_or_staged(piece.states[i].from(begin), stage.rows[2 + i], block.numel);
  }
  const bool is_16_bit = piece.shown && c10::elementSize(piece.shown.dtype) == 2;
  block.shown = is_16_bit ? piece.shown.from(begin).data : block.master;
  rule(block);
  for (int i = 0; i < kMaxStates; ++i) {
    const auto& state = piece.states[i];
    if (state && state.dtype != kDtype<Real>) {
      store(state.from(begin), block.states[i], block.numel);
    }
  }
  if (piece.writes_master) write_master(piece, begin, block.master, block.numel);
}

template <class Real, class Rule>
void update_blocks(const PieceElements& piece, const Rule& rule) {
  const int64_t num_blocks = (piece.numel + kBlockNumel - 1) / kBlockNumel;
  tensor::parallel_ranges(num_blocks, kBlocksPerThread, [&](int64_t begin, int64_t end) {
    Stage<Real> stage;
    for (int64_t index = begin; index < end; ++index) update_block(piece, index, stage, rule);
  });
}

}  // namespace detail

// Calls `rule` with every ElementBlock<float> of the piece, or ElementBlock<double> where the
// master is fp64. Blocks begin at multiples of kBlockNumel from the piece's begin, whatever the
// number of threads.
template <class Rule>
void update_elements(const PieceElements& piece, const Rule& rule) {
  if (piece.master.dtype == c10::ScalarType::Double) {
    detail::update_blocks<double>(piece, rule);
  } else {
    detail::update_blocks<float>(piece, rule);
  }
}

}  // namespace fullshard::optim
