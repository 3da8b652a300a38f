// SPDX-License-Identifier: Apache-2.0
// What a step of a Llama takes on the GPU, planned from its sizes alone and found by the allocator.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "fullshard/checkpoint/model_io.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/models/model_folder.h"
#include "fullshard/optim/adamw.h"
#include "tests/gpu.h"

namespace fullshard::testing {
namespace {

struct Sizes {
  int64_t layers = 8, width = 1024, heads = 16, kv_heads = 4, inner = 2816, vocabulary = 32000;
  int64_t batch = 16, length = 1024;

  int64_t head_width() const { return width / heads; }
  int64_t tokens() const { return batch * length; }
  std::string config() const {
    return nlohmann::json{{"architectures", {"LlamaForCausalLM"}},
                          {"model_type", "llama"},
                          {"hidden_size", width},
                          {"intermediate_size", inner},
                          {"num_hidden_layers", layers},
                          {"num_attention_heads", heads},
                          {"num_key_value_heads", kv_heads},
                          {"max_position_embeddings", length},
                          {"tie_word_embeddings", false},
                          {"vocab_size", vocabulary}}
        .dump();
  }
};

// Bytes at the highest point of a step with bf16 computation on one rank: the loss is being taken
// in chunks, every layer's activations are there, and of the gradients only the head's.
struct Plan {
  int64_t parameters, master, optimizer, gradients, activations, workspace;

  int64_t total() const {
    return parameters + master + optimizer + gradients + activations + workspace;
  }
  std::string text() const {
    return fmt::format(
        "parameters {} master {} optimizer {} gradients {} activations {} workspace {} total {}",
        parameters, master, optimizer, gradients, activations, workspace, total());
  }
};

Plan plan_of(const Sizes& sizes, int64_t numel) {
  constexpr int64_t kHalf = 2, kSingle = 4, kIndex = 8;
  const int64_t row = sizes.width * kHalf;
  const int64_t projected = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_width() * kHalf;
  // docs/cuda.md: the inputs of both norms with a number per row, the rotated q, k and v, the
  // output of attention with a number per head, gate and up.
  const int64_t kept_by_layer = 2 * (row + kSingle) + projected +
                                sizes.heads * sizes.head_width() * kHalf + sizes.heads * kSingle +
                                2 * sizes.inner * kHalf;
  // The input of the last norm, its output, and the gradient of that.
  const int64_t kept_by_head = 3 * row + kSingle;
  const int64_t inputs = 2 * kIndex;
  constexpr int64_t kChunks = 2;  // of at most 512 MiB
  return {.parameters = numel * kHalf,
          .master = numel * kHalf,  // the other half is the parameter
          .optimizer = numel * 2 * kSingle,
          .gradients = sizes.vocabulary * sizes.width * kSingle,
          .activations = sizes.tokens() * (sizes.layers * kept_by_layer + kept_by_head + inputs),
          .workspace = sizes.tokens() / kChunks * sizes.vocabulary * kHalf};
}

TEST(CudaMemory, ThePeakIsTheOnePlanned) {
  const Sizes sizes;
  at::manual_seed(1);
  const auto model = make_model(sizes.config(), "the plan's model");
  const int64_t before = memory::device_memory(kGpu).allocated_bytes;
  auto sharded = shard(model, World::single(kGpu), {.param_dtype = at::kBFloat16});
  AdamW optimizer(sharded, {});
  int64_t numel = 0;
  for (const auto& parameter : model->parameters()) numel += parameter.numel();
  const auto ids = at::randint(sizes.vocabulary, {sizes.batch, sizes.length}, at::kLong);
  for (int step = 0; step < 3; ++step) {
    memory::reset_device_peak(kGpu);
    ModelInputs inputs;
    inputs.input_ids = ids.to(kGpu);
    inputs.labels = ids.to(kGpu);
    model->forward(inputs).loss.backward();
    sharded.clip_grad_norm(1.0);
    optimizer.step();
    optimizer.zero_grad();
  }
  const Plan plan = plan_of(sizes, numel);
  const auto& ledger = sharded.ledger();
  EXPECT_EQ(ledger.held(tiers::Purpose::parameters), plan.parameters);
  EXPECT_EQ(ledger.held(tiers::Purpose::master), plan.master);
  EXPECT_EQ(ledger.held(tiers::Purpose::optimizer), plan.optimizer);
  const int64_t found = memory::device_memory(kGpu).peak_bytes - before;
  const auto planned = static_cast<double>(plan.total());
  EXPECT_NEAR(static_cast<double>(found), planned, 0.02 * planned) << plan.text();
}

}  // namespace
}  // namespace fullshard::testing
