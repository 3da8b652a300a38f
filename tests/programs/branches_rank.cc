// SPDX-License-Identifier: Apache-2.0
// One rank of tests/training/branch_model, for tests that need processes.
//   branches_rank BACKEND DEVICE NUM_CASES
// Prints "same" when all gradients are as expected, else the case and what differs.
#include <fmt/format.h>

#include <cstdlib>

#include "fullshard/comm/world/world.h"
#include "tests/training/branch_model.h"

namespace {

using namespace fullshard;
using namespace fullshard::testing;

std::string check_cases(const World& world, uint64_t num_cases) {
  std::string differing;
  for (uint64_t seed = 1; seed <= num_cases; ++seed) {
    auto spec = draw_case(seed, std::string(world.backend()));
    spec.ranks = world.size();
    spec.factor = 0;
    const auto found = differing_gradients(spec, world);
    if (!found.empty()) differing += spec.text() + "\n" + found;
  }
  return differing;
}

}  // namespace

int main(int, char** argv) {
  try {
    const auto world = World::from_environment({.backend = argv[1], .device = argv[2]});
    const auto differing = check_cases(world, std::strtoull(argv[3], nullptr, 10));
    fmt::print("{}\n", differing.empty() ? "same" : differing);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
