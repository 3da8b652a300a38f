// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/rotate_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/emulated_cuda/kernel_run.h"

namespace fullshard::emulation {
namespace {

struct Angles {
  at::Tensor cosines, sines;

  explicit Angles(int64_t half) {
    const auto angles = at::randn({40, half});
    cosines = angles.cos();
    sines = angles.sin();
  }
  ops::RotaryRows rows(int64_t half, const at::Tensor& positions) const {
    return {.cosines = cosines.data_ptr<float>(),
            .sines = sines.data_ptr<float>(),
            .num_positions = cosines.size(0),
            .positions = positions.defined() ? positions.data_ptr<int64_t>() : nullptr,
            .sequence = 7,
            .half = half};
  }
};

// heads [rows, heads, 2 * half], row t at position places[t].
at::Tensor turned(const at::Tensor& heads, const Angles& angles, const at::Tensor& places,
                  double sign) {
  const auto halves = heads.to(at::kDouble).chunk(2, -1);
  const auto cosines = angles.cosines.index_select(0, places).unsqueeze(1).to(at::kDouble);
  const auto sines = angles.sines.index_select(0, places).unsqueeze(1).to(at::kDouble) * sign;
  return at::cat({halves[0] * cosines - halves[1] * sines, halves[1] * cosines + halves[0] * sines},
                 -1);
}

TEST(EmulatedRotary, LeavesNanWhereTheTableHasNoAngles) {
  const int64_t half = 8;
  const auto positions =
      at::tensor({int64_t{-1}, int64_t{39}, int64_t{40}, int64_t{1} << 40}, at::kLong);
  for (const auto dtype : kKernelDtypes) {
    const Angles angles(half);
    const auto input = at::randn({4, 1, 2 * half}).to(dtype);
    const auto found = run_in_orders([&] {
      const Output output(input);
      ops::rotate_rows(output.data(), kernel_dtype(dtype), 4, 2 * half, 1,
                       angles.rows(half, positions), 1, kNoStream);
      return Outputs{output};
    });
    const auto are_nan = found[0].isnan().flatten(1).sum(1).gt(0);
    EXPECT_TRUE(at::equal(are_nan, at::tensor({1, 0, 1, 1}).ne(0))) << are_nan;
  }
}

TEST(EmulatedRotary, TurnsTheFirstHeadsOfEveryRow) {
  const int64_t rows = 21, heads = 5, num_turned = 3;
  const auto positions = at::arange(rows).flip(0).contiguous();
  for (const auto dtype : kKernelDtypes) {
    for (const int64_t half : {1, 3, 32}) {
      for (const auto& places : {at::Tensor(), positions}) {
        for (const float sign : {1.0f, -1.0f}) {
          const Angles angles(half);
          const auto input = at::randn({rows, heads, 2 * half}).to(dtype);
          const auto found = run_in_orders([&] {
            const Output output(input);
            ops::rotate_rows(output.data(), kernel_dtype(dtype), rows, heads * 2 * half, num_turned,
                             angles.rows(half, places), sign, kNoStream);
            return Outputs{output};
          });
          const auto of_row = places.defined() ? places : at::arange(rows) % 7;
          expect_near(found[0].narrow(1, 0, num_turned),
                      turned(input.narrow(1, 0, num_turned), angles, of_row, sign),
                      tolerance_of(dtype), "turned");
          EXPECT_TRUE(at::equal(found[0].narrow(1, num_turned, heads - num_turned),
                                input.narrow(1, num_turned, heads - num_turned)));
        }
      }
    }
  }
}

TEST(EmulatedRotary, PacksHeadsAndTurnsThemBack) {
  const int64_t rows = 21, heads = 4, kv_heads = 2;
  for (const auto dtype : kKernelDtypes) {
    for (const int64_t half : {3, 16}) {
      for (const bool turns : {true, false}) {
        const Angles angles(half);
        const auto query = at::randn({rows, heads, 2 * half}).to(dtype);
        const auto key = at::randn({rows, kv_heads, 2 * half}).to(dtype);
        const auto value = at::randn({rows, kv_heads, 2 * half}).to(dtype);
        auto rotary = angles.rows(half, {});
        if (!turns) rotary.cosines = rotary.sines = nullptr;
        const auto found = run_in_orders([&] {
          const Output output({rows, heads + 2 * kv_heads, 2 * half}, dtype);
          ops::pack_and_turn_back(
              output.data(), kernel_dtype(dtype), rows,
              {query.data_ptr(), key.data_ptr(), value.data_ptr(), heads, kv_heads}, rotary,
              kNoStream);
          return Outputs{output};
        });
        const auto both = at::cat({query, key}, 1);
        const auto expected =
            turns ? turned(both, angles, at::arange(rows) % 7, -1) : both.to(at::kDouble);
        expect_near(found[0].narrow(1, 0, heads + kv_heads), expected, tolerance_of(dtype),
                    "query and key");
        EXPECT_TRUE(at::equal(found[0].narrow(1, heads + kv_heads, kv_heads), value));
      }
    }
  }
}

}  // namespace
}  // namespace fullshard::emulation
