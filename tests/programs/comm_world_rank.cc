// A rank of a world of processes: finds itself in the environment and plays one scene.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/comm/mesh.h"

namespace fullshard {
namespace {

at::Tensor values(int rank, int64_t numel) {
  return (at::arange(numel, at::kDouble) * 0.37 + rank * 1.7).sin().to(at::kFloat);
}

// All bits of what the rank received, as one number.
uint64_t digest(const at::Tensor& tensor, uint64_t hash) {
  const at::Tensor bytes = tensor.contiguous().view(at::kByte);
  for (int64_t place = 0; place < bytes.numel(); ++place) {
    hash = (hash ^ bytes.const_data_ptr<uint8_t>()[place]) * 1099511628211U;
  }
  return hash;
}

void play_all_operations(const World& world) {
  const Mesh mesh(world, world.size() / 2);
  uint64_t hash = 14695981039346656037U;
  const at::Tensor full = at::empty({world.size() * 1000});
  world.communicator().all_gather(full, values(world.rank(), 1000)).wait();
  hash = digest(full, hash);
  const at::Tensor shard = values(7, 1000);
  const at::Tensor gradient = values(world.rank(), mesh.num_shards() * 1000);
  world.communicator()
      .reduce_scatter(shard, gradient, {.slices = mesh.num_shards(), .accumulate = true})
      .wait();
  hash = digest(shard, hash);
  const at::Tensor half = values(world.rank(), 33).to(at::kBFloat16);
  world.communicator().all_reduce(half, ReduceOp::average).wait();
  hash = digest(half, hash);
  const at::Tensor told = values(world.rank(), 5);
  world.communicator().broadcast(told, 1).wait();
  hash = digest(told, hash);
  mesh.replicas().barrier();
  fmt::print("rank {} of {} on {}: {:016x}\n", world.rank(), world.size(), world.backend(), hash);
}

void play_a_death(const World& world, int victim) {
  world.communicator().all_reduce(at::zeros({8}), ReduceOp::sum, "blocks.2").wait();
  if (world.rank() == victim) std::raise(SIGKILL);
  world.communicator().all_reduce(at::zeros({8}), ReduceOp::sum, "blocks.3").wait();
}

int play(const std::string& scene, const std::string& backend) {
  WorldOptions options{.backend = backend};
  std::optional<World> both;
  if (scene == "lonely") {
    // Both are there before either begins to count the time that a third one does not come.
    both = World::from_environment(options);
    options.timeouts.init = std::chrono::milliseconds(1500);
    options.size = 3;
  }
  const World world = World::from_environment(options);
  if (scene == "operations") play_all_operations(world);
  if (scene == "rank 0 dies") play_a_death(world, 0);
  if (scene == "rank 1 dies") play_a_death(world, 1);
  if (scene == "worlds") play_all_operations(World::from_environment(options));
  return 0;
}

}  // namespace
}  // namespace fullshard

// deepspeed adds --local_rank=N, which the environment says too.
int main(int count, char** arguments) {
  std::vector<std::string> words;
  for (const std::string& word : std::vector<std::string>(arguments + 1, arguments + count)) {
    if (!word.starts_with("--local_rank=") && !word.starts_with("--local-rank=")) {
      words.push_back(word);
    }
  }
  try {
    return fullshard::play(words.at(0), words.at(1));
  } catch (const fullshard::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_status();
  }
}
