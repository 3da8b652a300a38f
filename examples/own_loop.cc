// SPDX-License-Identifier: Apache-2.0
// A training loop of your own with all that belongs to a run: a torch optimizer, evaluation,
// checkpoints, metrics, progress and a report.
//
//   fullshard launch --ranks 2 -- own_loop OUTPUT [STEPS [STOP_AFTER]]
//
// Started again with the same OUTPUT it goes on from the last checkpoint, to the bit. STOP_AFTER
// ends it after so many steps, as a failure would.
#include <fmt/format.h>
#include <fullshard/fullshard.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace nn = torch::nn;

struct BlockImpl : fullshard::Unit {
  explicit BlockImpl(int64_t width)
      : up(register_module("up", nn::Linear(width, 4 * width))),
        down(register_module("down", nn::Linear(4 * width, width))) {}
  torch::Tensor forward(torch::Tensor x) { return x + down(torch::gelu(up(x))); }
  nn::Linear up, down;
};
FULLSHARD_UNIT(Block);

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

namespace {

constexpr int64_t kSamples = 64;  // of a rank in one step
constexpr double kRate = 3e-3;
constexpr int64_t kEvery = 5;  // steps between evaluations, and between checkpoints

// The loss on samples that depend on `seed` alone, so that a resumed run meets the same ones.
torch::Tensor loss_on(Model& model, uint64_t seed) {
  torch::manual_seed(seed);
  const auto x = torch::rand({kSamples, 2}) * 4;
  return (model(x) - torch::sin(x).prod(1, true)).square().mean();
}

double evaluate(Model& model) {
  const fullshard::EvaluationScope scope(*model);
  return loss_on(model, 0).item<double>();
}

void train(const std::string& output, int64_t steps, int64_t stop_after) {
  const auto world = fullshard::World::from_environment();
  torch::manual_seed(0);  // of the first weights: every run begins alike
  Model model(32, 3);
  auto sharded = fullshard::shard(model, world);
  fullshard::PieceParameters pieces(sharded);
  torch::optim::AdamW optimizer(pieces.tensors(), torch::optim::AdamWOptions(kRate));

  int64_t done = 0;
  const auto last = fullshard::last_checkpoint(output + "/checkpoints");
  if (!last.folder.empty()) {
    done = fullshard::load_checkpoint(last.folder, sharded, pieces, optimizer).progress.step;
  }
  fullshard::RunLog log(sharded,
                        {.output = output,
                         .model = "own_loop",
                         .num_steps = steps,
                         .first_step = done,
                         .overwrite = done == 0,  // it came to no checkpoint
                         .settings = {{"lr", fmt::format("{}", kRate)}, {"optimizer", "AdamW"}}});
  if (done > 0) log.say(fmt::format("going on after step {}", done));

  for (int64_t step = done + 1; step <= steps; ++step) {
    log.begin_step();
    const auto loss = loss_on(model, 1 + step * world.size() + world.rank());
    loss.backward();
    const double norm = sharded.clip_grad_norm(1.0);
    pieces.step(optimizer);
    pieces.zero_grad();
    log.end_step();

    std::optional<double> eval_loss;
    if (step % kEvery == 0) eval_loss = evaluate(model);
    log.step({.step = step,
              .loss = loss.item<double>(),
              .lr = kRate,
              .grad_norm = norm,
              .tokens = kSamples,
              .eval_loss = eval_loss});
    if (step % kEvery == 0) {
      fullshard::save_checkpoint(output + "/checkpoints/" + fullshard::checkpoint_name(step),
                                 sharded, pieces, optimizer, {.step = step});
    }
    fullshard::check(step != stop_after, "stopped after step {}, as asked", step);
  }
  log.finish();
}

}  // namespace

int main(int count, char** arguments) try {
  fullshard::check(count >= 2, "usage: own_loop OUTPUT [STEPS [STOP_AFTER]]");
  train(arguments[1], count > 2 ? std::stoll(arguments[2]) : 100,
        count > 3 ? std::stoll(arguments[3]) : 0);
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", fullshard::error_text(error).c_str());
  return 1;
}
