// SPDX-License-Identifier: Apache-2.0
// Does not compile: shard() is given the module and not its holder.
#include <fullshard/fullshard.h>

struct ModelImpl : fullshard::Unit {
  torch::Tensor forward(torch::Tensor x) { return x; }
};
FULLSHARD_UNIT(Model);

int main() {
  Model model;
  fullshard::shard(*model, fullshard::World::single());
}
