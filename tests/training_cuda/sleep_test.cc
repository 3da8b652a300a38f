// SPDX-License-Identifier: Apache-2.0
// A model that sleeps gives its memory of the GPU back to the driver, and wakes with the same bits.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fullshard/base/bytes.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/optim/adamw.h"
#include "tests/files.h"
#include "tests/gpu.h"
#include "tests/offload_options.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

// Some 60 MB of parameters, so that whole segments of the allocator are its own.
TrainingOptions wide_training() {
  TrainingOptions training;
  training.model = {.vocabulary = 1000, .width = 768, .heads = 8, .layers = 2};
  return training;
}

struct GpuNapper {
  explicit GpuNapper(const ShardOptions& options)
      : model(make_model(training)),
        sharded(shard(model, World::single(kGpu), options)),
        optimizer(sharded, {.lr = 1e-3}) {}

  void backward(int step) { model(make_batch(training, step, 0, 0).to(kGpu)).backward(); }
  void step() {
    optimizer.clip_without_waiting(0.5);
    optimizer.step();
    optimizer.zero_grad();
  }
  std::map<std::string, at::Tensor> masters() {
    std::map<std::string, at::Tensor> values;
    for (const auto& piece : sharded.pieces()) {  // copies: what rests on the host goes with it
      values[piece.name] =
          piece.master.to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    }
    return values;
  }

  TrainingOptions training = wide_training();
  TinyTransformer model;
  ShardedModel sharded;
  AdamW optimizer;
};

TEST(CudaSleep, GivesMemoryBackToTheDriverAndKeepsEveryBit) {
  const TemporaryFolder folder;
  auto ways = residences(folder.path());
  ways["on the device"] = {};
  for (const auto& [name, offload] : ways) {
    for (const auto compute : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(name);
      ShardOptions options{.param_dtype = compute, .offload = offload};
      options.offload.streams_on_cpu = false;
      options.offload.window_bytes = kMiB;
      std::map<std::string, at::Tensor> expected;
      {
        GpuNapper waking(options);
        for (int step = 0; step < 4; ++step) {
          waking.backward(step);
          waking.step();
        }
        expected = waking.masters();
      }
      memory::release_unused(kGpu);
      const auto before = memory::device_memory(kGpu);
      GpuNapper run(options);
      for (int step = 0; step < 4; ++step) {
        run.backward(step);
        if (step == 2) {
          const int64_t held = run.sharded.ledger().held_total();
          const auto report = run.sharded.sleep();
          EXPECT_EQ(report.device_bytes, held);
          EXPECT_EQ(run.sharded.ledger().held_total(), 0);
          // What stays is small: clip factors, tables of steps, the library's own workspace.
          constexpr int64_t kSmall = 48 * kMiB;
          const auto asleep = memory::device_memory(kGpu);
          EXPECT_LT(asleep.reserved_bytes - before.reserved_bytes, kSmall);
          EXPECT_EQ(run.sharded.wake().device_bytes, held);
        }
        run.step();
      }
      for (const auto& [parameter, values] : run.masters()) {
        EXPECT_TRUE(at::equal(values, expected.at(parameter))) << parameter;
      }
    }
  }
}

}  // namespace
}  // namespace fullshard::testing
