// SPDX-License-Identifier: Apache-2.0
// The Llama-style model of peers/train_step.py in C++: same names, shapes, operators, initial
// values and data, so that rank 0's losses can be compared with PyTorch's.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cmath>
#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/nn/unit.h"
#include "fullshard/ops/embedding.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard::bench {

struct LlamaConfig {
  int64_t layers = 0, width = 0, heads = 0, hidden = 0, vocabulary = 0;

  static LlamaConfig named(const std::string& name) {
    if (name == "llama-15m") return {6, 288, 6, 768, 32000};
    if (name == "llama-110m") return {12, 768, 12, 2048, 32000};
    fail_as(ErrorKind::usage, "--model {}: unknown; one of llama-15m, llama-110m", name);
  }
};

struct RmsNormImpl : torch::nn::Module {
  explicit RmsNormImpl(int64_t width) : weight(register_parameter("weight", at::ones({width}))) {}
  at::Tensor forward(const at::Tensor& x) { return at::rms_norm(x, weight.sizes(), weight); }
  at::Tensor weight;
};
TORCH_MODULE(RmsNorm);

struct Rope {
  at::Tensor cosines, sines;

  static Rope of(int64_t length, int64_t head_width) {
    const auto steps = at::arange(0, head_width, 2, at::kFloat) / static_cast<double>(head_width);
    const auto angles = at::outer(at::arange(length, at::kFloat), 1.0 / at::pow(10000, steps));
    return {angles.cos(), angles.sin()};
  }
};

inline at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cosines - halves[1] * sines, halves[1] * cosines + halves[0] * sines},
                 -1);
}

inline fullshard::Linear make_linear(int64_t in, int64_t out) {
  return fullshard::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

struct AttentionImpl : torch::nn::Module {
  AttentionImpl(int64_t width, int64_t num_heads) : heads(num_heads) {
    q = register_module("q", make_linear(width, width));
    k = register_module("k", make_linear(width, width));
    v = register_module("v", make_linear(width, width));
    o = register_module("o", make_linear(width, width));
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
    const auto split = [&](const at::Tensor& y) {
      return y.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
    };
    const auto queries = rotate(split(q(x)), cosines, sines);
    const auto keys = rotate(split(k(x)), cosines, sines);
    const auto y = at::scaled_dot_product_attention(queries, keys, split(v(x)), {}, 0.0,
                                                    /*is_causal=*/true);
    return o(y.transpose(1, 2).reshape(x.sizes()));
  }

  int64_t heads;
  fullshard::Linear q{nullptr}, k{nullptr}, v{nullptr}, o{nullptr};
};
TORCH_MODULE(Attention);

struct LlamaBlockImpl : Unit {
  explicit LlamaBlockImpl(const LlamaConfig& config) {
    n1 = register_module("n1", RmsNorm(config.width));
    n2 = register_module("n2", RmsNorm(config.width));
    att = register_module("att", Attention(config.width, config.heads));
    up = register_module("up", make_linear(config.width, config.hidden));
    down = register_module("down", make_linear(config.hidden, config.width));
    gate = register_module("gate", make_linear(config.width, config.hidden));
  }

  at::Tensor forward(at::Tensor x, const at::Tensor& cosines, const at::Tensor& sines) {
    x = x + att(n1(x), cosines, sines);
    const auto h = n2(x);
    return x + down(at::silu(gate(h)) * up(h));
  }

  RmsNorm n1{nullptr}, n2{nullptr};
  Attention att{nullptr};
  fullshard::Linear up{nullptr}, down{nullptr}, gate{nullptr};
};
FULLSHARD_UNIT(LlamaBlock);

struct LlamaImpl : Unit {
  explicit LlamaImpl(const LlamaConfig& shape) : config(shape) {
    embedding = register_module("emb", fullshard::Embedding(config.vocabulary, config.width));
    auto list = register_module("blocks", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks.emplace_back(config);
      list->push_back(blocks.back());
    }
    norm = register_module("norm", RmsNorm(config.width));
  }

  // The mean cross-entropy; the embedding is the output layer too.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& labels) {
    const auto [cosines, sines] = Rope::of(tokens.size(1), config.width / config.heads);
    auto x = embedding(tokens);
    for (auto& block : blocks) x = block(x, cosines, sines);
    const auto logits = fullshard::linear(norm(x), embedding->weight);
    return at::cross_entropy_loss(logits.view({-1, config.vocabulary}), labels.reshape(-1));
  }

  LlamaConfig config;
  fullshard::Embedding embedding{nullptr};
  std::vector<LlamaBlock> blocks;
  RmsNorm norm{nullptr};
};
FULLSHARD_UNIT(Llama);

// Matrices normal with deviation 0.02 from one seed per parameter; norms stay at 1.
inline void initialise(torch::nn::Module& model) {
  at::NoGradGuard no_grad;
  uint64_t seed = 1000;
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() > 1) parameter.normal_(0, 0.02, at::detail::createCPUGenerator(seed));
    ++seed;
  }
}

// Four batches of random tokens [batch, length + 1], different on every rank.
inline std::vector<at::Tensor> random_batches(int64_t vocabulary, int64_t batch, int64_t length,
                                              int rank) {
  auto generator = at::detail::createCPUGenerator(1 + rank);
  std::vector<at::Tensor> batches;
  for (int i = 0; i < 4; ++i) {
    batches.push_back(at::randint(0, vocabulary, {batch, length + 1}, generator, at::kLong));
  }
  return batches;
}

}  // namespace fullshard::bench
