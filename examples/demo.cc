// `make demo`: a small transformer learns a short text character by character, fully sharded over
// the ranks that `fullshard launch` started. It shows the units, the bytes per rank beside those of
// an unsharded run, the loss, and what the model has learnt.
#include <fmt/format.h>
#include <fullshard/fullshard.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace nn = torch::nn;

namespace {

constexpr std::string_view kText =
    "The keeper of the lighthouse wrote in her book each night. "
    "When the wind came from the north she wrote: the sea is loud and the lamp is bright. "
    "When the wind came from the south she wrote: the sea is calm and the boats are late. "
    "In the morning she counted the boats. If one was missing she climbed the stairs again, "
    "lit the lamp again, and waited. The stairs had two hundred steps, and she knew each of them. "
    "The first step was worn by many feet, the last step was worn by hers alone. "
    "Children from the village asked her why she lit the lamp on quiet nights. "
    "She said: a light that shines only in the storm teaches nobody the way. "
    "So they carried the oil up together, each of them a little, and nobody carried all of it. "
    "That is how the lamp of the lighthouse stayed bright. ";

constexpr int64_t kContext = 64;
constexpr int64_t kWidth = 96;
constexpr int64_t kHeads = 4;
constexpr int kLayers = 3;
constexpr int kSteps = 240;
constexpr int64_t kBatch = 12;

// The characters of the text, in order; a token is a place in it.
std::string alphabet() {
  std::string letters(kText);
  std::sort(letters.begin(), letters.end());
  letters.erase(std::unique(letters.begin(), letters.end()), letters.end());
  return letters;
}

torch::Tensor encode(std::string_view text, const std::string& letters) {
  std::vector<int64_t> tokens;
  for (const char letter : text) tokens.push_back(static_cast<int64_t>(letters.find(letter)));
  return torch::tensor(tokens);
}

struct BlockImpl : fullshard::Unit {
  BlockImpl()
      : norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        qkv(register_module("qkv", nn::Linear(kWidth, 3 * kWidth))),
        out(register_module("out", nn::Linear(kWidth, kWidth))),
        up(register_module("up", nn::Linear(kWidth, 4 * kWidth))),
        down(register_module("down", nn::Linear(4 * kWidth, kWidth))) {}

  torch::Tensor forward(torch::Tensor x) {
    const auto heads = qkv(norm1(x)).view({x.size(0), x.size(1), 3, kHeads, -1}).transpose(1, 3);
    const auto mixed = torch::scaled_dot_product_attention(
        heads.select(2, 0), heads.select(2, 1), heads.select(2, 2), {}, 0.0, /*is_causal=*/true);
    x = x + out(mixed.transpose(1, 2).reshape(x.sizes()));
    return x + down(torch::gelu(up(norm2(x))));
  }

  nn::LayerNorm norm1, norm2;
  nn::Linear qkv, out, up, down;
};
FULLSHARD_UNIT(Block);

struct CharacterModelImpl : fullshard::Unit {
  explicit CharacterModelImpl(int64_t num_letters)
      : letters(register_module("letters", nn::Embedding(num_letters, kWidth))),
        places(register_module("places", nn::Embedding(kContext, kWidth))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        head(register_module("head", nn::Linear(kWidth, num_letters))) {
    for (int i = 0; i < kLayers; ++i) {
      blocks.push_back(register_module(fmt::format("block{}", i), Block()));
    }
  }

  // Tokens [batch, length] to logits [batch, length, letters].
  torch::Tensor forward(torch::Tensor tokens) {
    auto x = letters(tokens) + places(torch::arange(tokens.size(1)));
    for (auto& block : blocks) x = block(x);
    return head(norm(x));
  }

  nn::Embedding letters, places;
  nn::LayerNorm norm;
  nn::Linear head;
  std::vector<Block> blocks;
};
FULLSHARD_UNIT(CharacterModel);

// The mean cross-entropy of random windows of the text.
torch::Tensor loss_of_batch(CharacterModel& model, const torch::Tensor& tokens) {
  const auto starts = torch::randint(tokens.size(0) - kContext, {kBatch, 1}, torch::kLong);
  const auto windows = tokens.index({starts + torch::arange(kContext + 1)});
  const auto logits = model(windows.narrow(1, 0, kContext));
  return torch::cross_entropy_loss(logits.flatten(0, 1), windows.narrow(1, 1, kContext).flatten());
}

// The most likely continuation. Every rank takes part: a sharded forward is collective.
std::string continue_text(CharacterModel& model, const std::string& letters, std::string text,
                          int length) {
  torch::NoGradGuard no_grad;
  for (int i = 0; i < length; ++i) {
    const auto seen = std::min<size_t>(text.size(), kContext);
    const auto tokens = encode(std::string_view(text).substr(text.size() - seen), letters);
    const auto logits = model(tokens.unsqueeze(0));
    text += letters[static_cast<size_t>(logits[0][-1].argmax().item<int64_t>())];
  }
  return text;
}

// Bytes this rank holds between backward and step, beside those of one unsharded process.
std::string memory_table(const fullshard::ShardedModel& model) {
  using fullshard::Purpose;
  const int64_t whole = model.numel() * 4;
  const auto row = [](std::string_view name, int64_t unsharded, int64_t sharded) {
    return fmt::format("  {:<18} {:>10} {:>14}\n", name, fullshard::format_bytes(unsharded),
                       fullshard::format_bytes(sharded));
  };
  const auto& ledger = model.ledger();
  const auto held = [&](Purpose purpose) { return ledger.held(purpose); };
  const int64_t parameters = held(Purpose::parameters) + held(Purpose::master);
  return fmt::format("  {:<18} {:>10} {:>14}\n", "bytes per rank", "unsharded", "here") +
         row("parameters", whole, parameters) + row("gradients", whole, held(Purpose::gradients)) +
         row("AdamW's states", 2 * whole, held(Purpose::optimizer)) +
         row("together", 4 * whole, ledger.held_total()) +
         fmt::format("  at the peak, with gathered units: {}\n",
                     fullshard::format_bytes(ledger.peak_total()));
}

void run() {
  torch::set_num_threads(1);
  const auto world = fullshard::World::from_environment();
  const auto say = [&](const std::string& text) {
    if (world.rank() != 0) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  };
  const auto letters = alphabet();
  const auto tokens = encode(kText, letters);
  torch::manual_seed(1);
  CharacterModel model(static_cast<int64_t>(letters.size()));
  auto sharded = fullshard::shard(model, world);
  fullshard::AdamW optimizer(sharded, {.lr = 3e-3});
  say(fmt::format("FULL_SHARD on {} ranks ({}): {} parameters in these units\n\n{}\n", world.size(),
                  world.backend(), fullshard::format_count(sharded.numel()), sharded.tree()));

  torch::manual_seed(100 + world.rank());  // every rank reads other windows of the text
  const auto start = std::chrono::steady_clock::now();
  for (int step = 1; step <= kSteps; ++step) {
    const auto loss = loss_of_batch(model, tokens);
    loss.backward();
    sharded.clip_grad_norm(1.0);
    if (step == 2) say(memory_table(sharded) + "\n");
    optimizer.step();
    optimizer.zero_grad();
    if (step == 1 || step % (kSteps / 8) == 0) {
      say(fmt::format("step {:>4}   loss {:.3f}\n", step, loss.item<double>()));
    }
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const std::string prompt = "When the wind came from the north";
  say(fmt::format("\n{} steps in {:.1f} s. It continues \"{}\" with:\n", kSteps, taken.count(),
                  prompt));
  const auto text = continue_text(model, letters, prompt, 110);
  say(fmt::format("  ...{}\n", text.substr(prompt.size())));
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: demo: %s\n", error.what());
    return 1;
  }
}
