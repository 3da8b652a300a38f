// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_cuda/kernel_run.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/emulated_cuda/emulation/block.h"

namespace fullshard::emulation {
namespace {

constexpr int64_t kBeside = 64;  // elements on each side

// Bytes of all ones: NaN in every floating dtype.
at::Tensor poisoned(int64_t numel, at::ScalarType dtype) {
  auto memory = at::empty({numel}, dtype);
  std::memset(memory.data_ptr(), 0xff, memory.nbytes());
  return memory;
}

bool has_same_bytes(const at::Tensor& one, const at::Tensor& other) {
  const auto left = one.contiguous(), right = other.contiguous();
  return left.nbytes() == right.nbytes() &&
         std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

}  // namespace

Output::Output(at::IntArrayRef sizes, at::ScalarType dtype, int shift) {
  const int64_t numel = c10::multiply_integers(sizes);
  whole_ = poisoned(numel + shift + 2 * kBeside, dtype);
  before_ = whole_.clone();
  values_ = whole_.narrow(0, kBeside + shift, numel).view(sizes);
}

Output::Output(const at::Tensor& before, int shift)
    : Output(before.sizes(), before.scalar_type(), shift) {
  values_.copy_(before);
}

bool Output::is_alone_written() const {
  const int64_t first = values_.storage_offset(), end = first + values_.numel();
  return has_same_bytes(whole_.narrow(0, 0, first), before_.narrow(0, 0, first)) &&
         has_same_bytes(whole_.narrow(0, end, whole_.numel() - end),
                        before_.narrow(0, end, whole_.numel() - end));
}

std::vector<at::Tensor> run_in_orders(const std::function<Outputs()>& run) {
  struct Order {
    ThreadOrder order;
    const char* name;
  };
  // Not the ascending one, in which a missing barrier often does no harm.
  const Order orders[] = {{ThreadOrder::descending(), "descending"},
                          {ThreadOrder::random(17), "random (seed 17)"}};
  std::vector<at::Tensor> first;
  for (const auto& [order, name] : orders) {
    order.use();
    const auto outputs = run();
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_TRUE(outputs[i].is_alone_written())
          << "written beside output " << i << " with threads in " << name << " order";
      if (first.size() < outputs.size()) {
        first.push_back(outputs[i].values());
      } else {
        EXPECT_TRUE(has_same_bytes(outputs[i].values(), first[i]))
            << "other bits in output " << i << " with threads in " << name << " order";
      }
    }
  }
  ThreadOrder::ascending().use();
  return first;
}

at::Tensor shifted_by(const at::Tensor& values, int shift) {
  return at::empty({values.numel() + shift}, values.options())
      .narrow(0, shift, values.numel())
      .view(values.sizes())
      .copy_(values);
}

ops::KernelDtype kernel_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat ? ops::KernelDtype::fp32 : ops::KernelDtype::bf16;
}

void expect_near(const at::Tensor& found, const at::Tensor& expected, double relative,
                 const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  if (found.numel() == 0) return;
  const auto wide = found.to(at::kDouble), exact = expected.to(at::kDouble);
  ASSERT_TRUE(at::equal(wide.isnan(), exact.isnan()))
      << what << ": NaN in " << wide.isnan().sum().item<int64_t>() << " places instead of "
      << exact.isnan().sum().item<int64_t>();
  const double scale = exact.nan_to_num().abs().max().item<double>();
  const double worst = (wide - exact).nan_to_num().abs().max().item<double>();
  EXPECT_LE(worst, relative * scale + 1e-12)
      << what << ": values reach " << scale << ", the largest difference is at "
      << (wide - exact).nan_to_num().abs().argmax().item<int64_t>();
}

}  // namespace fullshard::emulation
