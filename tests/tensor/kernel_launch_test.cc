// SPDX-License-Identifier: Apache-2.0
// What a kernel may be given. A build without CUDA has no kernels: these launch nothing, but for
// the device they could be of the CPU.
#include "fullshard/tensor/kernel_launch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/tensor/pretence.h"
#include "tests/errors.h"
#include "tests/gpu.h"

namespace fullshard::testing {
namespace {

using tensor::KernelLaunch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

[[maybe_unused]] const bool launches_pretend_gpus = (tensor::pretend_gpus(), true);

at::Tensor of_a_plan(at::Device device) {
  const tensor::PretenceScope scope;
  return at::empty({3, 5}, at::TensorOptions().device(device));
}

class KernelNames : public tensor::OperatorWatch {
 public:
  void ran(const tensor::OperatorCall& call, int64_t) override {
    names.push_back(call.name);
    bytes.push_back(call.bytes);
  }
  void marked(int64_t, int64_t) override {}
  void held(int64_t, int64_t) override {}
  void held_host(int64_t) override {}
  void moved_on_disk(int64_t, int64_t, bool) override {}
  void waited_for_disk(int64_t) override {}

  std::vector<std::string> names;
  std::vector<int64_t> bytes;
};

TEST(KernelLaunch, GivesOutAddressesOfItsDevice) {
  const KernelLaunch launch("test", at::kCPU);
  const auto values = at::zeros({4});
  EXPECT_EQ(launch.read(values), values.const_data_ptr());
  EXPECT_EQ(launch.write_as<float>(values.narrow(0, 1, 2)), values.data_ptr<float>() + 1);
  EXPECT_EQ(launch.read(at::Tensor()), nullptr);
  EXPECT_EQ(launch.write(at::zeros({0})), nullptr);
}

TEST(KernelLaunch, RefusesTensorsOfAnotherDevice) {
  const KernelLaunch launch("rotary", at::kCPU);
  EXPECT_EQ(message_of([&] { (void)launch.read(of_a_plan(kGpu)); }),
            "GPU kernel 'rotary' on cpu: a tensor [3, 5] of Float lies on cuda:0; move it to the "
            "device first");
}

TEST(KernelLaunch, RefusesTensorsWithoutMemory) {
  const KernelLaunch launch("rotary", at::kCPU);
  const auto planned = of_a_plan(at::kCPU);
  const std::string refused =
      "GPU kernel 'rotary' on cpu: a tensor [3, 5] of Float is of a plan and has no memory; this "
      "is "
      "a bug of Fullshard, please report it";
  EXPECT_EQ(message_of([&] { (void)launch.read(planned); }), refused);
  EXPECT_EQ(message_of([&] { (void)launch.write_as<float>(planned); }), refused);
  EXPECT_EQ(message_of([&] { tensor::check_reachable("rotary", at::kCPU, planned); }), refused);
}

TEST(KernelLaunch, IsOnlyNotedInAPlan) {
  const auto watch = std::make_shared<KernelNames>();
  const tensor::OperatorWatchScope watched(watch);
  const tensor::PretenceScope scope;
  const auto values = at::empty({3, 5}, at::TensorOptions().device(kGpu));
  bool has_run = false;
  const auto run = [&](const KernelLaunch&) { has_run = true; };
  watch->names.clear();
  watch->bytes.clear();
  tensor::launch_kernel("first", kGpu, {values, values}, run);
  tensor::launch_kernel("second", kGpu, int64_t{12}, run);
  EXPECT_FALSE(has_run);
  EXPECT_THAT(watch->names, ElementsAre("first", "second"));
  EXPECT_THAT(watch->bytes, ElementsAre(2 * 3 * 5 * 4, 12));
}

// The guard that a plan leaves behind is of a device that computes nothing.
TEST(KernelLaunch, SaysWhyItWasNotLaunched) {
  if (tensor::has_device_kernels()) GTEST_SKIP() << "needs a build without CUDA";
  EXPECT_THAT(
      message_of([] { tensor::launch_kernel("test", at::kCPU, int64_t{0}, [](const auto&) {}); }),
      HasSubstr("GPU kernel 'test' on cpu: this build of Fullshard has no CUDA"));
}

}  // namespace
}  // namespace fullshard::testing
