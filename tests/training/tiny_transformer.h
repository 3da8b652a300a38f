// SPDX-License-Identifier: Apache-2.0
// A small transformer with tied embeddings, the model of most engine tests.
#pragma once

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <string>
#include <vector>

#include "fullshard/nn/unit.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard::testing {

struct TinyConfig {
  int64_t vocabulary = 13;
  int64_t width = 6;
  int64_t heads = 2;
  int64_t layers = 3;
};

struct TinyBlockImpl : Unit {
  explicit TinyBlockImpl(const TinyConfig& config) : heads(config.heads) {
    const int64_t width = config.width;
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    // A bias of the keys would have no gradient but rounding noise, which AdamW blows up.
    qkv = register_module(
        "qkv", torch::nn::Linear(torch::nn::LinearOptions(width, 3 * width).bias(false)));
    out = register_module("out", torch::nn::Linear(width, width));
    up = register_module("up", Linear(width, 4 * width));
    down = register_module("down", Linear(4 * width, width));
  }

  at::Tensor forward(at::Tensor x) {
    const auto batch = x.size(0), length = x.size(1), width = x.size(2);
    auto parts =
        qkv(norm(x)).view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    x = x + out(mixed.transpose(1, 2).reshape({batch, length, width}));
    return x + down(at::gelu(up(x)));
  }

  int64_t heads;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr};
  Linear up{nullptr}, down{nullptr};  // with a gradient sink
};
FULLSHARD_UNIT(TinyBlock);

struct TinyTransformerImpl : Unit {
  explicit TinyTransformerImpl(const TinyConfig& config) {
    embedding = register_module("embedding", torch::nn::Embedding(config.vocabulary, config.width));
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), TinyBlock(config)));
    }
    norm =
        register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width})));
  }

  // The mean loss of predicting each token from those before it.
  at::Tensor forward(at::Tensor ids) {
    auto x = embedding(ids.narrow(1, 0, ids.size(1) - 1));
    for (auto& block : blocks) x = block(x);
    const auto logits = fullshard::linear(norm(x), embedding->weight);
    const auto labels = ids.narrow(1, 1, ids.size(1) - 1);
    return at::cross_entropy_loss(logits.flatten(0, 1), labels.flatten());
  }

  torch::nn::Embedding embedding{nullptr};
  std::vector<TinyBlock> blocks;
  torch::nn::LayerNorm norm{nullptr};
};
FULLSHARD_UNIT(TinyTransformer);

}  // namespace fullshard::testing
