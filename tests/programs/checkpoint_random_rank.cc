// SPDX-License-Identifier: Apache-2.0
// One rank that saves a checkpoint and loads it again, with random numbers of its own:
//   checkpoint_random_rank FOLDER
// Prints the number that it drew after saving and the one that it drew after loading.
#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/adamw.h"
#include "tests/checkpoint/wide_model.h"

namespace {

int64_t drawn_number() { return at::randint(int64_t{1} << 40, {1}, at::kLong).item<int64_t>(); }

}  // namespace

int main(int argc, char** argv) {
  using namespace fullshard;
  if (argc != 2) return 2;
  const auto world = World::from_environment({});
  fullshard::testing::Wide model(8);
  auto sharded = shard(model, world, {.sync_module_states = true});
  AdamW optimizer(sharded, {});
  at::manual_seed(static_cast<uint64_t>(100 + world.rank()));
  save_checkpoint(argv[1], sharded, optimizer, {});
  const int64_t expected = drawn_number();
  at::manual_seed(7);
  load_checkpoint(argv[1], sharded, optimizer);
  fmt::print("{} {}\n", expected, drawn_number());
}
