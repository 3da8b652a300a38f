// SPDX-License-Identifier: Apache-2.0
// A module of your own, fully sharded: fullshard launch --ranks 2 -- shard_your_module
#include <fullshard/fullshard.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <exception>

namespace nn = torch::nn;

struct BlockImpl : fullshard::Unit {  // a unit: gathered, and released, as a whole
  explicit BlockImpl(int64_t width)
      : up(register_module("up", nn::Linear(width, 4 * width))),
        down(register_module("down", nn::Linear(4 * width, width))) {}
  torch::Tensor forward(torch::Tensor x) { return x + down(torch::gelu(up(x))); }
  nn::Linear up, down;
};
FULLSHARD_UNIT(Block);  // in place of TORCH_MODULE(Block)

struct ModelImpl : fullshard::Unit {
  ModelImpl(int64_t width, int num_blocks)
      : in(register_module("in", nn::Linear(2, width))),
        out(register_module("out", nn::Linear(width, 1))) {
    for (int i = 0; i < num_blocks; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Block(width)));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    x = in(x);
    for (auto& block : blocks) x = block(x);
    return out(x);
  }
  nn::Linear in, out;
  std::vector<Block> blocks;
};
FULLSHARD_UNIT(Model);

int main() try {
  const auto world = fullshard::World::from_environment();
  Model model(64, 4);
  auto sharded = fullshard::shard(model, world);
  fullshard::AdamW optimizer(sharded, {.lr = 1e-3});
  const bool speaks = world.rank() == 0;
  if (speaks) std::printf("%s", sharded.tree().c_str());

  torch::manual_seed(world.rank());  // every rank learns from samples of its own
  for (int step = 1; step <= 50; ++step) {
    const auto x = torch::rand({256, 2}) * 4;
    const auto loss = (model(x) - torch::sin(x).prod(1, true)).square().mean();
    loss.backward();
    sharded.clip_grad_norm(1.0);
    if (speaks && step % 10 == 0) std::printf("step %d  loss %.4f\n", step, loss.item<double>());
    if (speaks && step == 50) std::printf("%s", sharded.ledger().table().c_str());
    optimizer.step();
    optimizer.zero_grad();
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", fullshard::error_text(error).c_str());
  return 1;
}
