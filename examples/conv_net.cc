// SPDX-License-Identifier: Apache-2.0
// A convolutional net with BatchNorm, fully sharded, over data of your own:
//   fullshard launch --ranks 2 -- conv_net [STEPS]
// Images of a bar that stands or lies, made on the fly. Statistics of BatchNorm are those of rank
// 0's batches on every rank (ShardOptions::broadcast_buffers), so all of them evaluate alike.
#include <fullshard/fullshard.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

namespace nn = torch::nn;

struct StageImpl : fullshard::Unit {
  StageImpl(int64_t from, int64_t to)
      : conv(register_module(
            "conv", nn::Conv2d(nn::Conv2dOptions(from, to, 3).stride(2).padding(1).bias(false)))),
        norm(register_module("norm", nn::BatchNorm2d(to))) {}
  torch::Tensor forward(torch::Tensor x) { return torch::relu(norm(conv(x))); }
  nn::Conv2d conv;
  nn::BatchNorm2d norm;
};
FULLSHARD_UNIT(Stage);

struct NetImpl : fullshard::Unit {
  NetImpl()
      : first(register_module("first", Stage(1, 16))),
        second(register_module("second", Stage(16, 32))),
        out(register_module("out", nn::Linear(32, 2))) {}
  torch::Tensor forward(torch::Tensor x) { return out(second(first(x)).mean({2, 3})); }
  Stage first, second;
  nn::Linear out;
};
FULLSHARD_UNIT(Net);

// Noise with a bar across each image, and whether it lies.
std::pair<torch::Tensor, torch::Tensor> images(int64_t count) {
  const auto lies = torch::randint(0, 2, {count}), place = torch::randint(0, 16, {count});
  auto x = torch::randn({count, 1, 16, 16}) * 0.5;
  for (int64_t i = 0; i < count; ++i) {
    x[i][0].select(lies[i].item<int64_t>() == 1 ? 0 : 1, place[i].item<int64_t>()) += 2;
  }
  return {x, lies};
}

int main(int count, char** arguments) try {
  const int steps = count > 1 ? std::atoi(arguments[1]) : 100;
  const auto world = fullshard::World::from_environment();
  Net net;
  auto sharded = fullshard::shard(net, world);
  fullshard::AdamW optimizer(sharded, {.lr = 3e-3});
  torch::manual_seed(world.rank());  // every rank learns from images of its own
  for (int step = 0; step < steps; ++step) {
    const auto [x, lies] = images(32);
    nn::functional::cross_entropy(net(x), lies).backward();
    sharded.clip_grad_norm(1.0);
    optimizer.step();
    optimizer.zero_grad();
  }
  net->eval();
  torch::manual_seed(1234);  // the same new images on every rank
  const torch::NoGradGuard no_grad;
  const auto [x, lies] = images(256);
  const auto right = net(x).argmax(1).eq(lies).sum().item<int64_t>();
  if (world.rank() == 0) std::printf("%d of 256 new images are right\n", static_cast<int>(right));
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", fullshard::error_text(error).c_str());
  return 1;
}
