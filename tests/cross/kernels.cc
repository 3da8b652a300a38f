// SPDX-License-Identifier: Apache-2.0
// Runs the loops that choose an instruction set when a program starts, on fixed inputs, and prints
// a checksum of each result. scripts/cross_kernels.sh compares the lines of two architectures: they
// must be equal, since results do not depend on the instruction set. Without libtorch and gtest, so
// that a cross compiler needs nothing but its C++ library.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "fullshard/base/crc32c.h"
#include "fullshard/comm/ordered_sum_kernels.h"
#include "fullshard/comm/streamed_kernels.h"
#include "fullshard/ops/kernels/activation_kernels.h"
#include "fullshard/ops/kernels/few_rows_kernels.h"
#include "fullshard/ops/kernels/norm_kernels.h"
#include "fullshard/ops/kernels/rotary_kernels.h"

namespace fullshard {
namespace {

constexpr int64_t kNumel = 1'000'003;  // no multiple of any vector's width

// Between -4 and 4, the same on every machine.
std::vector<float> values(uint32_t seed) {
  std::vector<float> made(kNumel);
  for (float& value : made) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(seed >> 8) - (1 << 23)) / (1 << 21);
  }
  return made;
}

void show(const char* name, const std::vector<float>& result) {
  const auto bytes = static_cast<int64_t>(result.size() * sizeof(float));
  std::printf("%s %08x\n", name, base::crc32c_by_tables(result.data(), bytes));
}

void run_checksums(const std::vector<float>& input) {
  const auto bytes = static_cast<int64_t>(input.size() * sizeof(float)) - 1;
  std::printf("crc32c %08x %08x\n", base::crc32c(input.data(), bytes),
              base::crc32c_by_tables(input.data(), bytes));
}

void run_sums(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> output(kNumel);
  kernels::sum_of_two(output.data(), a.data(), b.data(), 0.3f, kNumel);
  show("sum_of_two", output);
  kernels::streamed_sum_of_two(output.data(), a.data(), b.data(), 0.3f, kNumel);
  show("streamed_sum_of_two", output);
  kernels::streamed_copy(reinterpret_cast<std::byte*>(output.data()),
                         reinterpret_cast<const std::byte*>(a.data()), kNumel * sizeof(float));
  show("streamed_copy", output);
}

void run_operators(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> output(kNumel), inverse(1000);
  ops::activate(ops::KernelActivation::silu, output.data(), a.data(), kNumel);
  show("silu", output);
  ops::activate_gated(ops::KernelActivation::tanh_gelu, output.data(), a.data(), b.data(), kNumel);
  show("gated gelu", output);
  ops::rms_norm_rows(output.data(), inverse.data(), a.data(), b.data(), 1000, 999, 1e-5f);
  show("rms_norm", output);
  ops::rotate_heads(output.data(), a.data(), 130, a.data(), b.data(), 100, 65, 1.0f);
  show("rotate_heads", output);
}

void run_products(const std::vector<float>& a, const std::vector<float>& b) {
  constexpr int64_t width = 333, num_inputs = 13, num_outputs = 101;
  std::vector<float> output(num_inputs * num_outputs), packed(num_inputs * width);
  ops::pack_few_rows(packed.data(), a.data(), num_inputs, width);
  const ops::FewRowsProduct<float> product{.output = output.data(),
                                           .num_outputs = num_outputs,
                                           .packed = packed.data(),
                                           .num_inputs = num_inputs,
                                           .width = width,
                                           .weight = b.data()};
  ops::multiply_few_rows(product, 0, num_outputs);
  show("few_rows", output);
}

}  // namespace
}  // namespace fullshard

int main() {
  const auto a = fullshard::values(1), b = fullshard::values(2);
  fullshard::run_checksums(a);
  fullshard::run_sums(a, b);
  fullshard::run_operators(a, b);
  fullshard::run_products(a, b);
  return 0;
}
