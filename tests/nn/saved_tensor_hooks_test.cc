// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/saved_tensor_hooks.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <thread>

namespace fullshard::nn {
namespace {

using at::Tensor;

// Keeps copies, and counts.
class CopyingPacker : public SavedTensorPacker {
 public:
  struct Copy : PackedTensor {
    Copy(CopyingPacker& owner, const Tensor& saved) : packer(owner), tensor(saved.clone()) {
      ++packer.alive;
    }
    ~Copy() override { --packer.alive; }
    Tensor unpack() override {
      ++packer.unpacked;
      return tensor;
    }
    CopyingPacker& packer;
    Tensor tensor;
  };

  std::unique_ptr<PackedTensor> pack(const Tensor& tensor) override {
    ++packed;
    return std::make_unique<Copy>(*this, tensor);
  }

  int packed = 0, unpacked = 0, alive = 0;
};

TEST(SavedTensorHooks, PackInTheScopeAndUnpackInBackward) {
  CopyingPacker packer;
  const Tensor x = at::rand({3}).requires_grad_(true);
  Tensor y;
  {
    const SavedTensorScope scope(&packer);
    y = x.exp();  // saves its output
  }
  EXPECT_EQ(packer.packed, 1);
  const Tensor z = (y * y).sum();  // outside: saved as ever
  EXPECT_EQ(packer.packed, 1);
  z.backward();
  EXPECT_EQ(packer.unpacked, 1);
  EXPECT_EQ(packer.alive, 0);  // freed with the graph's other tensors although z lives
  EXPECT_TRUE(at::equal(x.grad(), 2 * x.exp() * x.exp()));
}

TEST(SavedTensorHooks, ARetainedGraphUnpacksAgain) {
  CopyingPacker packer;
  const Tensor x = at::rand({3}).requires_grad_(true);
  Tensor y;
  {
    const SavedTensorScope scope(&packer);
    y = x.exp().sum();
  }
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  EXPECT_EQ(packer.unpacked, 2);
  EXPECT_EQ(packer.alive, 0);
}

TEST(SavedTensorHooks, BelongToTheirThread) {
  CopyingPacker packer;
  const SavedTensorScope scope(&packer);
  std::thread([] { at::rand({3}).requires_grad_(true).exp(); }).join();
  EXPECT_EQ(packer.packed, 0);
  at::rand({3}).requires_grad_(true).exp();
  EXPECT_EQ(packer.packed, 1);
}

TEST(SavedTensorHooks, ScopesNestAndEndWithAnException) {
  CopyingPacker outer, inner;
  const Tensor x = at::rand({3}).requires_grad_(true);
  const SavedTensorScope outer_scope(&outer);
  EXPECT_THROW(
      {
        const SavedTensorScope inner_scope(&inner);
        x.exp();
        throw std::runtime_error("no");
      },
      std::runtime_error);
  x.exp();
  {
    const SavedTensorScope unchanged(nullptr);
    x.exp();
  }
  EXPECT_EQ(inner.packed, 1);
  EXPECT_EQ(outer.packed, 2);
}

TEST(SavedTensorHooks, AUnitsScopeHasNoEffectInAReplay) {
  CopyingPacker packer;
  const Tensor x = at::rand({3}).requires_grad_(true);
  {
    const ReplayScope replay;
    const auto scope = SavedTensorScope::of_unit(&packer);
    x.exp();
  }
  EXPECT_EQ(packer.packed, 0);
  const auto scope = SavedTensorScope::of_unit(&packer);
  x.exp();
  EXPECT_EQ(packer.packed, 1);
}

TEST(SavedTensorHooks, AWriteInPlaceAfterSavingIsTorchsUsualError) {
  CopyingPacker packer;
  const Tensor x = at::rand({2, 3}).requires_grad_(true);
  Tensor y = x * 2, z;
  {
    const SavedTensorScope scope(&packer);
    z = (y * y).sum();
  }
  y.add_(1);
  try {
    z.backward();
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                ::testing::HasSubstr(
                    "one of the variables needed for gradient computation has been modified by an "
                    "inplace operation: [Float [2, 3]] is at version 1; expected version 0"));
  }
}

// Threads of devices and callbacks at the end of a backward belong to libtorch's own engine.
TEST(SavedTensorHooks, TheOldEngineStillRunsGraphsAndCallbacks) {
  CopyingPacker packer;
  auto& engine = torch::autograd::Engine::get_default_engine();
  EXPECT_NE(&engine, &torch::autograd::Engine::get_base_engine());
  const Tensor x = at::rand({3}).requires_grad_(true);
  const Tensor y = x.exp();
  int called = 0;
  y.register_hook([&](const Tensor&) { engine.queue_callback([&] { ++called; }); });
  y.sum().backward();
  EXPECT_EQ(called, 1);
}

TEST(VersionStamp, KnowsViewsAndDetachedTensorsButNotOtherCounters) {
  Tensor x = at::rand({3});
  const VersionStamp stamp(x);
  EXPECT_TRUE(stamp == VersionStamp(x.detach()));
  EXPECT_TRUE(stamp == VersionStamp(x.view({1, 3})));
  EXPECT_FALSE(stamp == VersionStamp(x.variable_data()));
  x.add_(1);
  EXPECT_FALSE(stamp.is_current());
  EXPECT_FALSE(stamp == VersionStamp(x));
  EXPECT_EQ(stamp.version() + 1, stamp.current_version());
}

}  // namespace
}  // namespace fullshard::nn
