// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/activation_offload.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "expect_error.h"
#include "fullshard/nn/recompute_policy.h"
#include "fullshard/nn/unit.h"
#include "fullshard/tensor/storage.h"

namespace fullshard::nn {
namespace {

using at::Tensor;
using Copies = HostStore::Copies;

// Attention with queries, keys and values in one tensor, dropout, a residual path.
struct OffloadedBlockImpl : Unit {
  explicit OffloadedBlockImpl(int64_t width) : width_(width) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
    out = register_module("out", torch::nn::Linear(width, width));
    scale = register_buffer("scale", at::full({width}, 0.5));
  }
  Tensor forward(Tensor x) {
    const int64_t batch = x.size(0), length = x.size(1);
    const auto parts =
        qkv(norm(x)).view({batch, length, 3, 2, width_ / 2}).permute({2, 0, 3, 1, 4});
    const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    const auto y = out(mixed.transpose(1, 2).reshape({batch, length, width_}));
    return x + at::dropout(y, 0.5, true) * scale;
  }
  int64_t width_;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr};
  Tensor scale;
};
FULLSHARD_UNIT(OffloadedBlock);

struct ChainImpl : Unit {
  ChainImpl(int64_t count, int64_t width) {
    for (int64_t i = 0; i < count; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), OffloadedBlock(width)));
    }
  }
  Tensor forward(Tensor x) {
    for (auto& block : blocks) x = block(x);
    return x.pow(2).sum();
  }
  std::vector<OffloadedBlock> blocks;
};
FULLSHARD_UNIT(Chain);

constexpr int64_t kBatch = 2, kLength = 5, kWidth = 8;
constexpr int64_t kInputBytes = kBatch * kLength * kWidth * 4;

template <class Module>
std::vector<Tensor> train_offloaded(Module& model) {
  at::manual_seed(11);
  model->zero_grad();
  const Tensor x = at::rand({kBatch, kLength, kWidth}).requires_grad_(true) * 2;
  const Tensor loss = model(x);
  loss.backward();
  std::vector<Tensor> results{loss.detach()};
  for (const Tensor& parameter : model->parameters()) results.push_back(parameter.grad().clone());
  return results;
}

void expect_equal_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

TEST(ActivationOffload, GivesTheSameBits) {
  Chain chain(3, kWidth);
  const auto plain = train_offloaded(chain);
  for (const auto copies : {Copies::always, Copies::when_away}) {
    for (const int64_t min_bytes : {int64_t{0}, int64_t{400}, int64_t{16 * 1024}}) {
      auto store = std::make_shared<HostStore>(nullptr, copies);
      EXPECT_EQ(offload_activations(*chain, store, {.min_bytes = min_bytes}), 4);
      expect_equal_bits(plain, train_offloaded(chain));
      EXPECT_EQ(store->counters().num_put > 0, min_bytes < 16 * 1024);
      EXPECT_EQ(store->counters().bytes_held, 0);
    }
  }
  EXPECT_EQ(keep_activations(*chain), 4);
  EXPECT_TRUE(chain->is_plain());
}

TEST(ActivationOffload, GivesTheSameBitsOnCuda) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no CUDA device";
  Chain chain(2, kWidth);
  chain->to(at::kCUDA);
  const auto run = [&] {
    at::manual_seed(11);
    chain->zero_grad();
    const Tensor x = at::rand({kBatch, kLength, kWidth}).to(at::kCUDA);
    chain(x).backward();
    std::vector<Tensor> results;
    for (const Tensor& parameter : chain->parameters()) results.push_back(parameter.grad().clone());
    return results;
  };
  const auto plain = run();
  auto store = std::make_shared<HostStore>();
  offload_activations(*chain, store, {.min_bytes = 0});
  expect_equal_bits(plain, run());
  EXPECT_GT(store->counters().bytes_got, 0);
}

TEST(ActivationOffload, WithRecomputationStoresTheInputsOnly) {
  constexpr int kBlocks = 4;
  Chain chain(kBlocks, kWidth);
  const auto plain = train_offloaded(chain);
  EXPECT_EQ(recompute_units(*chain, RecomputePolicy::all()), kBlocks);
  for (const auto copies : {Copies::always, Copies::when_away}) {
    auto store = std::make_shared<HostStore>(nullptr, copies);
    offload_activations(*chain, store, {.min_bytes = 0});
    expect_equal_bits(plain, train_offloaded(chain));
    // The root's own forward saves the last output, for its square.
    EXPECT_EQ(store->counters().peak_bytes_held, (kBlocks + 1) * kInputBytes);
    EXPECT_EQ(store->counters().bytes_put, (kBlocks + 1) * kInputBytes);
    EXPECT_EQ(store->counters().bytes_got, (kBlocks + 1) * kInputBytes);
  }
}

// What all saved tensors together hold, in the replay too: n inputs and one block.
TEST(ActivationOffload, CountsThePeakThatRecomputationPromises) {
  constexpr int kBlocks = 4;
  const auto peak_of = [](bool recompute, int blocks) {
    Chain chain(blocks, kWidth);
    if (recompute) recompute_units(*chain, RecomputePolicy::all());
    auto store = std::make_shared<HostStore>();
    ActivationOffload offload(*chain, store, {.min_bytes = 0});
    const SavedTensorScope everywhere(&offload);
    train_offloaded(chain);
    return store->counters().peak_bytes_held;
  };
  const int64_t end = kInputBytes;  // of the root: the last output
  const int64_t block = peak_of(false, 2) - peak_of(false, 1);
  EXPECT_GT(block, 5 * kInputBytes);
  EXPECT_EQ(peak_of(false, kBlocks) - peak_of(false, 1), (kBlocks - 1) * block);
  // The first block's leaf input and the square's output are held in every case; differences tell.
  EXPECT_EQ(peak_of(true, kBlocks) - peak_of(true, 1), (kBlocks - 1) * kInputBytes);
  EXPECT_LE(peak_of(true, 1), kInputBytes + block + end);
}

struct ReuseImpl : Unit {
  ReuseImpl() { weight = register_parameter("weight", at::rand({8, 8})); }
  Tensor forward(Tensor x) {
    const Tensor y = x.exp();                       // saves y
    const Tensor once = at::mm(y, weight.t()) * y;  // saves y, weight.t(), the product, y
    return (once + y.view({2, 4, 8}).view({8, 8}).sin()).sum();  // saves a view of y
  }
  Tensor weight;
};
FULLSHARD_UNIT(Reuse);

TEST(ActivationOffload, StoresATensorOnceAndLeavesParametersAlone) {
  Reuse reuse;
  auto store = std::make_shared<HostStore>(nullptr, Copies::always);
  offload_activations(*reuse, store, {.min_bytes = 0});
  const Tensor loss = reuse(at::rand({8, 8}).requires_grad_(true) * 1);
  EXPECT_EQ(store->counters().num_put, 2);  // y and the product
  EXPECT_EQ(store->counters().bytes_held, 2 * 8 * 8 * 4);
  loss.backward();
  EXPECT_EQ(store->counters().bytes_held, 0);
  EXPECT_EQ(store->counters().peak_bytes_held, 2 * 8 * 8 * 4);
}

struct ThirdsImpl : Unit {
  Tensor forward(Tensor x) {
    const Tensor y = x * 1;
    const auto parts = y.chunk(3, 1);
    return (parts[0] * parts[1] * parts[2]).sum() + y.narrow(1, 0, 1).exp().sum();
  }
};
FULLSHARD_UNIT(Thirds);

TEST(ActivationOffload, PartsOfOneTensorAreStoredTogether) {
  Thirds thirds;
  auto store = std::make_shared<HostStore>(nullptr, Copies::always);
  const Tensor x = at::rand({4, 6}).requires_grad_(true);
  thirds(x).backward();
  const Tensor plain = x.grad().clone();
  offload_activations(*thirds, store, {.min_bytes = 0});
  x.mutable_grad() = Tensor();
  const Tensor loss = thirds(x);
  // The whole of y, one product of two thirds, and the exponential.
  EXPECT_EQ(store->counters().bytes_held, (4 * 6 + 4 * 2 + 4) * 4);
  loss.backward();
  EXPECT_TRUE(at::equal(x.grad(), plain));
}

TEST(ActivationOffload, TheOriginalIsFreedWhenTheStoreCopies) {
  Reuse reuse;
  auto store = std::make_shared<HostStore>(nullptr, Copies::always);
  offload_activations(*reuse, store, {.min_bytes = 0});
  Tensor x = at::rand({8, 8}).requires_grad_(true), y = x * 1;
  const auto watch = y.storage().getWeakStorageImpl();
  const Tensor loss = reuse(y);
  y.reset();
  EXPECT_TRUE(watch.expired());
  loss.backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(ActivationOffload, TellsItsListenerAlsoAfterTheStoreIsGone) {
  int64_t held = 0;
  Tensor loss;
  {
    Reuse reuse;
    offload_activations(*reuse, std::make_shared<HostStore>([&](int64_t delta) { held += delta; }),
                        {.min_bytes = 0});
    loss = reuse(at::rand({8, 8}).requires_grad_(true) * 1);
    EXPECT_EQ(held, 2 * 8 * 8 * 4);
  }
  EXPECT_EQ(held, 2 * 8 * 8 * 4);
  loss.backward();
  EXPECT_EQ(held, 0);
}

TEST(ActivationOffload, AWriteInPlaceAfterSavingIsTorchsUsualError) {
  struct SavesImpl : Unit {
    Tensor forward(Tensor x) { return (x * x).sum(); }
  };
  UnitHolder<SavesImpl> saves;
  for (const int64_t min_bytes : {int64_t{0}, int64_t{1} << 20}) {  // stored, and kept
    offload_activations(*saves, std::make_shared<HostStore>(), {.min_bytes = min_bytes});
    Tensor x = at::rand({3}).requires_grad_(true) * 1;
    const Tensor y = saves(x);
    x.add_(1);
    EXPECT_THROW(y.backward(), c10::Error);
  }
}

TEST(ActivationOffload, ATensorWrittenBetweenTwoSavesIsStoredTwice) {
  struct WritesImpl : Unit {
    Tensor forward(Tensor x) {
      Tensor y = x * 1;
      const Tensor first = y.detach().clone() * x;
      y.mul_(3);
      return (y * y).sum() + first.sum();
    }
  };
  UnitHolder<WritesImpl> writes;
  const Tensor x = at::rand({3}).requires_grad_(true);
  writes(x).backward();
  const Tensor plain = x.grad().clone();
  x.mutable_grad() = Tensor();
  offload_activations(*writes, std::make_shared<HostStore>(nullptr, Copies::always),
                      {.min_bytes = 0});
  writes(x).backward();
  EXPECT_TRUE(at::equal(x.grad(), plain));
}

// A parameter whose memory is away, as that of a sharded unit: any touch would throw.
TEST(ActivationOffload, NeverReadsAReleasedParameter) {
  Reuse reuse;
  const Tensor flat = tensor::empty_storage_tensor(64, at::kFloat, "released");
  auto memory = at::rand({64});
  reuse->weight.set_data(flat.view({8, 8}));
  ActivationOffload offload(*reuse, std::make_shared<HostStore>(nullptr, Copies::always),
                            {.min_bytes = 0});
  const Tensor frozen = tensor::empty_storage_tensor(64, at::kFloat, "released").view({8, 8});
  for (const Tensor& tensor : {reuse->weight.detach(), reuse->weight.t(), frozen}) {
    auto packed = offload.pack(tensor);
    EXPECT_THROW(packed->unpack().sum(), c10::Error);
  }
  auto packed = offload.pack(reuse->weight.t());
  tensor::refill(flat, memory.data_ptr());
  EXPECT_TRUE(at::equal(packed->unpack(), memory.view({8, 8}).t()));
  tensor::release(flat, "released");
}

TEST(ActivationOffload, RefusesANegativeThreshold) {
  Reuse reuse;
  EXPECT_EQ(error_of([&] {
              offload_activations(*reuse, std::make_shared<HostStore>(), {.min_bytes = -1});
            }),
            "offload of activations: min_bytes is -1, expected 0 or more");
}

}  // namespace
}  // namespace fullshard::nn
