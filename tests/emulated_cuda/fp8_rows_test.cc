// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/fp8_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fullshard/ops/cuda/widen_rows.h"
#include "tests/emulated_cuda/kernel_run.h"

namespace fullshard::emulation {
namespace {

at::Tensor bf16_values(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }

at::Tensor largest_parts_of(const at::Tensor& values) {
  auto parts = at::empty({ops::kLargestParts});
  ops::largest_values(parts.data_ptr<float>(), false, values.data_ptr(), values.numel(), kNoStream);
  return parts;
}

TEST(EmulatedFp8, FindsTheLargestMagnitude) {
  for (const int64_t count : {8, 300'000}) {
    auto values = bf16_values({count});
    values[count / 2] = -100;
    const auto before = at::full({ops::kLargestParts}, 3.0f);
    const auto found = run_in_orders([&] {
      const Output parts({ops::kLargestParts}, at::kFloat), joined(before);
      ops::largest_values(parts.data<float>(), false, values.data_ptr(), count, kNoStream);
      ops::largest_values(joined.data<float>(), true, values.data_ptr(), count, kNoStream);
      return Outputs{parts, joined};
    });
    EXPECT_EQ(found[0].max().item<float>(), 100);
    EXPECT_EQ(found[1].max().item<float>(), 100);
    EXPECT_EQ(found[1].min().item<float>(), 3);
    values[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(largest_parts_of(values).isnan().any().item<bool>());
  }
}

struct Fp8Case {
  ops::Fp8Kind kind;
  int64_t rows, width;
};

at::ScalarType dtype_of(ops::Fp8Kind kind) {
  return kind == ops::Fp8Kind::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
}

std::vector<Fp8Case> fp8_cases() {
  std::vector<Fp8Case> cases;
  for (const auto kind : {ops::Fp8Kind::e4m3, ops::Fp8Kind::e5m2}) {
    for (const auto& [rows, width] :
         {std::pair<int64_t, int64_t>{1, 16}, {5, 32}, {130, 80}, {300, 144}}) {
      cases.push_back({kind, rows, width});
    }
  }
  return cases;
}

TEST(EmulatedFp8, RoundsRowsAsTorchDoesAndTurnsThem) {
  for (const auto& [kind, rows, width] : fp8_cases()) {
    SCOPED_TRACE(::testing::Message() << rows << " rows of " << width
                                      << (kind == ops::Fp8Kind::e4m3 ? " e4m3" : " e5m2"));
    const auto values = bf16_values({rows, width});
    const auto parts = largest_parts_of(values);
    const int64_t length = (rows + 15) / 16 * 16, stride = length + 16;
    const auto run = [&](bool keeps_rows, bool turns) {
      const Output own({rows, width}, at::kByte), turned({width, stride}, at::kByte);
      const Output factor({1}, at::kFloat);
      ops::to_fp8_rows({.rows = keeps_rows ? own.data() : nullptr,
                        .turned = turns ? turned.data() : nullptr,
                        .turned_stride = stride,
                        .turned_length = length,
                        .factor = factor.data<float>()},
                       {.values = values.data_ptr(),
                        .num_rows = rows,
                        .width = width,
                        .parts = parts.data_ptr<float>(),
                        .kind = kind},
                       kNoStream);
      return Outputs{own, turned, factor};
    };
    const auto both = run_in_orders([&] { return run(true, true); });
    const auto flat = run_in_orders([&] { return run(true, false); });
    const auto turned = run_in_orders([&] { return run(false, true); });
    const float most = kind == ops::Fp8Kind::e4m3 ? 448.0f : 57344.0f;
    const float multiplier = most / values.abs().max().item<float>();
    EXPECT_EQ(both[2].item<float>(), 1.0f / multiplier);
    const auto expected =
        (values.to(at::kFloat) * multiplier).clamp(-most, most).to(dtype_of(kind)).view(at::kByte);
    EXPECT_TRUE(at::equal(both[0], expected));
    EXPECT_TRUE(at::equal(flat[0], expected));
    for (const auto& found : {both[1], turned[1]}) {
      EXPECT_TRUE(at::equal(found.narrow(1, 0, rows), expected.t()));
      EXPECT_EQ(found.narrow(1, rows, length - rows).sum().item<int64_t>(), 0) << "up to 16 rows";
      EXPECT_TRUE(found.narrow(1, length, 16).eq(0xff).all().item<bool>()) << "behind them";
    }
  }
}

TEST(EmulatedFp8, MakesEverythingNaNOfANaN) {
  auto values = bf16_values({2, 16});
  values[1][3] = std::numeric_limits<float>::infinity();
  const auto parts = largest_parts_of(values);
  const Output own({2, 16}, at::kByte), factor({1}, at::kFloat);
  ops::to_fp8_rows(
      {.rows = own.data(), .factor = factor.data<float>()},
      {.values = values.data_ptr(), .num_rows = 2, .width = 16, .parts = parts.data_ptr<float>()},
      kNoStream);
  EXPECT_TRUE(own.values().view(at::kFloat8_e4m3fn).to(at::kFloat).isnan().all().item<bool>());
}

TEST(EmulatedWidening, MultipliesRowsOf8BitIntegers) {
  for (const auto dtype : kKernelDtypes) {
    for (const int64_t width : {1, 5, 16, 4112}) {
      const auto values = at::randint(-127, 128, {3, width}, at::kChar);
      const auto scales = at::rand({3}) + 0.1;
      const auto found = run_in_orders([&] {
        const Output output({3, width}, dtype);
        ops::widen_rows({.dtype = kernel_dtype(dtype),
                         .num_rows = 3,
                         .width = width,
                         .output = output.data(),
                         .values = values.data_ptr<int8_t>(),
                         .scales = scales.data_ptr<float>()},
                        kNoStream);
        return Outputs{output};
      });
      EXPECT_TRUE(at::equal(found[0], (values.to(at::kFloat) * scales.unsqueeze(1)).to(dtype)));
    }
  }
}

}  // namespace
}  // namespace fullshard::emulation
