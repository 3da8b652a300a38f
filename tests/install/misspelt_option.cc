// SPDX-License-Identifier: Apache-2.0
// Does not compile: ShardOptions has no sync_module_state.
#include <fullshard/fullshard.h>

struct ModelImpl : fullshard::Unit {
  torch::Tensor forward(torch::Tensor x) { return x; }
};
FULLSHARD_UNIT(Model);

int main() {
  Model model;
  fullshard::shard(model, fullshard::World::single(), {.sync_module_state = true});
}
