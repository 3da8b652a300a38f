// SPDX-License-Identifier: Apache-2.0
// A rank of a world of processes: finds itself in the environment and plays one scene.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/mesh.h"

namespace fullshard {
namespace {

at::Tensor some_values(int rank, int64_t numel) {
  return (at::arange(numel, at::kDouble) * 0.37 + rank * 1.7).sin().to(at::kFloat);
}

// All bits of what the rank received, as one number.
uint64_t digest(const at::Tensor& tensor, uint64_t hash) {
  const at::Tensor bytes = tensor.cpu().contiguous().view(at::kByte);
  for (int64_t place = 0; place < bytes.numel(); ++place) {
    hash = (hash ^ bytes.const_data_ptr<uint8_t>()[place]) * 1099511628211U;
  }
  return hash;
}

void play_all_operations(const World& world) {
  const Mesh mesh(world, world.size() / 2);
  uint64_t hash = 14695981039346656037U;
  const auto values = [&](int rank, int64_t numel) {
    return some_values(rank, numel).to(world.device());
  };
  const at::Tensor full = at::empty({world.size() * 1000}, values(0, 1).options());
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

// Small integers, which every dtype and every order of sums holds exactly.
class ExactOperations {
 public:
  ExactOperations(const World& world, at::ScalarType dtype)
      : world_(world), everyone_(world.communicator()), dtype_(dtype) {}

  void play() const {
    gather();
    exchange();
    for (const auto op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) reduce(op);
    if (dtype_ != at::kLong) reduce(ReduceOp::average);
    const auto told = own(kNumel);
    everyone_.broadcast(told, world_.size() - 1).wait();
    expect(told, of(world_.size() - 1, kNumel), "broadcast");
  }

 private:
  static constexpr int64_t kNumel = 1003;

  // Divisible by the number of ranks, so that averages are whole too.
  at::Tensor of(int rank, int64_t numel) const {
    const auto counts = at::arange(numel, at::kDouble).remainder(7);
    return (counts + rank) * world_.size();
  }
  at::Tensor own(int64_t numel) const { return on_device(of(world_.rank(), numel), dtype_); }
  at::Tensor on_device(const at::Tensor& values, at::ScalarType dtype) const {
    return values.to(dtype).to(world_.device());
  }

  void gather() const {
    const int size = world_.size();
    std::vector<at::Tensor> expected;
    for (int rank = 0; rank < size; ++rank) expected.push_back(of(rank, kNumel));
    const auto whole = on_device(at::zeros({size, kNumel}), dtype_);
    everyone_.all_gather(whole, own(kNumel)).wait();
    expect(whole, at::stack(expected), "all_gather");
    const auto wide = on_device(at::zeros({size, kNumel + 8}), dtype_);
    const auto window = wide.narrow(1, 4, kNumel);
    window[world_.rank()].copy_(own(kNumel));
    everyone_.all_gather(window, window[world_.rank()]).wait();
    expect(wide, at::constant_pad_nd(at::stack(expected), {4, 4}), "all_gather of a window");
  }

  // Row r of each rank's values goes to rank r.
  void exchange() const {
    const int size = world_.size();
    std::vector<at::Tensor> expected;
    for (int rank = 0; rank < size; ++rank) {
      expected.push_back(of(rank, size * kNumel).view({size, kNumel})[world_.rank()]);
    }
    const auto received = on_device(at::zeros({size * kNumel}), dtype_);
    everyone_.all_to_all(received, own(size * kNumel)).wait();
    expect(received.view({size, kNumel}), at::stack(expected), "all_to_all");
    const auto wide = on_device(at::zeros({size, kNumel + 8}), dtype_);
    const auto sent = on_device(at::zeros({size, kNumel + 3}), dtype_);
    sent.narrow(1, 2, kNumel).copy_(own(size * kNumel).view({size, kNumel}));
    everyone_.all_to_all(wide.narrow(1, 4, kNumel), sent.narrow(1, 2, kNumel)).wait();
    expect(wide, at::constant_pad_nd(at::stack(expected), {4, 4}), "all_to_all of windows");
  }

  at::Tensor folded(ReduceOp op, int64_t numel) const {
    auto result = of(0, numel);
    for (int rank = 1; rank < world_.size(); ++rank) {
      const auto row = of(rank, numel);
      if (op == ReduceOp::max) {
        result = at::maximum(result, row);
      } else {
        result = op == ReduceOp::min ? at::minimum(result, row) : result + row;
      }
    }
    return op == ReduceOp::average ? result / world_.size() : result;
  }

  void reduce(ReduceOp op) const {
    for (int slices = 1; slices <= world_.size(); ++slices) {
      if (world_.size() % slices != 0) continue;
      const auto sums = folded(op, slices * kNumel).view({slices, kNumel});
      const auto expected = sums[world_.rank() % slices];
      const auto what = fmt::format("reduce_scatter into {}", slices);
      const auto shard = on_device(at::full({kNumel}, 3), dtype_);
      const auto input = own(slices * kNumel);
      everyone_.reduce_scatter(shard, input, {.op = op, .slices = slices}).wait();
      expect(shard, expected, what);
      everyone_.reduce_scatter(shard, input, {.op = op, .slices = slices, .accumulate = true})
          .wait();
      expect(shard, expected * 2, what + ", added");
      const auto in_place = input.view({slices, kNumel})[world_.rank() % slices];
      everyone_.reduce_scatter(in_place, input, {.op = op, .slices = slices}).wait();
      expect(in_place, expected, what + " in place");
      if (dtype_ == at::kLong) continue;
      const auto wide = at::zeros({kNumel}, at::kFloat).to(world_.device());
      everyone_.reduce_scatter(wide, own(slices * kNumel), {.op = op, .slices = slices}).wait();
      expect(wide, expected, what + " of fp32");
    }
    const auto all = own(kNumel);
    everyone_.all_reduce(all, op).wait();
    expect(all, folded(op, kNumel), "all_reduce");
  }

  void expect(const at::Tensor& found, const at::Tensor& expected, const std::string& what) const {
    check(found.cpu().to(at::kDouble).equal(expected), "{} of {} on rank {}: another result", what,
          c10::toString(dtype_), world_.rank());
  }

  const World& world_;
  const Communicator& everyone_;
  at::ScalarType dtype_;
};

void play_exact_operations(const World& world) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
    ExactOperations(world, dtype).play();
  }
  fmt::print("rank {} of {} on {}: exact\n", world.rank(), world.size(), world.backend());
}

void play_a_death(const World& world, int victim) {
  world.communicator().all_reduce(at::zeros({8}), ReduceOp::sum, "blocks.2").wait();
  if (world.rank() == victim) std::raise(SIGKILL);
  world.communicator().all_reduce(at::zeros({8}), ReduceOp::sum, "blocks.3").wait();
}

// The machine's own, the same in all processes.
double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void say_when(const World& world, const std::string& what) {
  fmt::print("rank {} {} at {:.3f}\n", world.rank(), what, steady_seconds());
  std::fflush(stdout);
}

// When the last rank died, and when each of the others was told. One that was told is gone at once:
// unloading libtorch, a third of a second, would take the cores from those that have yet to hear.
void play_a_timed_death(const World& world) {
  world.communicator().barrier();
  if (world.rank() == world.size() - 1) {
    say_when(world, "dies");
    std::raise(SIGKILL);
  }
  try {
    world.communicator().all_reduce(at::zeros({8}), ReduceOp::sum, "blocks.3").wait();
  } catch (const Error& error) {
    say_when(world, "knows");
    fmt::print(stderr, "error: {}\n", error.what());
    ::_exit(error.exit_status());
  }
}

// Rank 0 waits, and says so, for one that comes when it is told to.
void play_a_freeze(const World& world) {
  world.communicator().barrier();
  if (world.rank() == 0) std::ofstream("waits");
  while (world.rank() == 1 && !std::filesystem::exists("come")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  world.communicator().barrier();
}

void play_meeting_and_leaving(const World& world) {
  say_when(world, "met");
  world.communicator().barrier();
  say_when(world, "leaves");
}

void synchronise(const World& world) {
  at::detail::getCUDAHooks().deviceSynchronize(world.device().index());
}

at::Tensor on_device(const World& world, int64_t numel) {
  return at::ones({numel}, at::TensorOptions().device(world.device()));
}

// Calls of two groups that rank 1 does not come to: it is dead, or busy with something else. The
// other one waits for its GPU, as a step does that reads its norm.
void play_in_vain(const World& world, bool dies) {
  const Communicator second = world.split(0, "second");
  world.communicator().all_reduce(on_device(world, 1 << 20), ReduceOp::sum, "blocks.2").wait();
  second.all_reduce(on_device(world, 1 << 20), ReduceOp::sum, "blocks.2").wait();
  synchronise(world);
  world.communicator().barrier();
  if (world.rank() == 1) {
    if (dies) std::raise(SIGKILL);
    ::pause();  // until the test ends it
  }
  const auto start = std::chrono::steady_clock::now();
  try {
    world.communicator().all_reduce(on_device(world, 1 << 20), ReduceOp::sum, "blocks.3").wait();
    second.all_reduce(on_device(world, 1 << 20), ReduceOp::sum, "blocks.4").wait();
    synchronise(world);
  } catch (const Error&) {  // a call may already find out
  }
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  fmt::print("waited {:.3f} s\n", waited.count());
  // Both groups are given up, and nothing is issued any more.
  for (const Communicator& group : {world.communicator(), second}) {
    try {
      group.all_reduce(on_device(world, 8), ReduceOp::sum, "blocks.5");
      fmt::print("group {} takes calls\n", group.group());
    } catch (const Error&) {
    }
  }
  std::fflush(stdout);
  world.check_sound();
}

// The first call of a group, which makes its communicator, and to which rank 1 does not come.
void play_a_lonely_start(const World& world) {
  world.communicator().barrier();
  if (world.rank() == 1) ::pause();
  world.communicator().all_reduce(on_device(world, 8), ReduceOp::sum, "blocks.2").wait();
}

// How many GPUs this process holds memory on, after calls, their watch and an end.
void play_contexts(const World& world) {
  world.communicator().all_reduce(on_device(world, 1 << 20)).wait();
  synchronise(world);
  world.communicator().barrier();
  const auto& hooks = at::detail::getCUDAHooks();
  int contexts = 0;
  for (int i = 0; i < hooks.deviceCount(); ++i) {
    contexts += hooks.hasPrimaryContext(static_cast<c10::DeviceIndex>(i)) ? 1 : 0;
  }
  fmt::print("rank {} of {} on {}: contexts on {} GPU\n", world.rank(), world.size(),
             world.backend(), contexts);
}

// Three groups exist; so many of them carry a call between devices.
void play_groups(const World& world, size_t num_used) {
  const Mesh mesh(world, 2);
  const std::vector<Communicator> groups = {mesh.shards(), mesh.everyone(), mesh.replicas()};
  for (const Communicator& group : groups) group.barrier();  // through the host
  for (size_t i = 0; i < num_used; ++i) groups[i].all_reduce(on_device(world, 1 << 10)).wait();
  synchronise(world);
  world.communicator().barrier();
  fmt::print("rank {} of {} on {}: {} of {} groups\n", world.rank(), world.size(), world.backend(),
             num_used, groups.size());
}

int64_t num_descriptors() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count - 1;  // that of the folder itself
}

// Of /proc/self/smaps_rollup, in KiB: memory that ranks share counts in equal parts for each.
int64_t proportional_kib() {
  std::ifstream lines("/proc/self/smaps_rollup");
  for (std::string word; lines >> word;) {
    int64_t kib = 0;
    if (word == "Pss:" && lines >> kib) return kib;
  }
  return 0;
}

// What a rank costs that only waits, with a group inside its host and one across hosts, as hybrid
// sharding has them.
void play_idle(const World& world, double met_s) {
  const Mesh mesh(world, world.ranks_per_host());
  const auto start = std::chrono::steady_clock::now();
  for (int call = 0; call < 20; ++call) world.communicator().all_reduce(at::zeros({8})).wait();
  const std::chrono::duration<double> calls = std::chrono::steady_clock::now() - start;
  fmt::print("rank {} met_s {:.3f} call_ms {:.2f} descriptors {} kib {}\n", world.rank(), met_s,
             calls.count() * 50, num_descriptors(), proportional_kib());
  std::fflush(stdout);
  world.communicator().barrier();
}

int play(const std::string& scene, const std::string& backend, const std::string& device) {
  comm::WorldOptions options{.backend = backend, .device = device};
  if (scene == "rank 1 does not come") options.timeouts.step = std::chrono::seconds(10);
  if (scene == "freeze") options.timeouts.step = std::chrono::seconds(4);
  if (scene == "rank 1 does not start") options.timeouts.init = std::chrono::seconds(20);
  if (scene == "rank 1 has no device" && std::string(std::getenv("RANK")) == "1") {
    options.device = "cuda:99";
  }
  std::optional<World> both;
  if (scene == "lonely") {
    // Both are there before either begins to count the time that a third one does not come.
    both = World::from_environment(options);
    options.timeouts.init = std::chrono::milliseconds(1500);
    options.size = 3;
  }
  const auto start = std::chrono::steady_clock::now();
  const World world = World::from_environment(options);
  const std::chrono::duration<double> met = std::chrono::steady_clock::now() - start;
  if (scene == "idle") play_idle(world, met.count());
  if (scene == "operations") play_all_operations(world);
  if (scene == "exact operations") play_exact_operations(world);
  if (scene == "freeze") play_a_freeze(world);
  if (scene == "meet and leave") play_meeting_and_leaving(world);
  if (scene == "the last rank dies") play_a_timed_death(world);
  if (scene == "rank 0 dies") play_a_death(world, 0);
  if (scene == "rank 1 dies") play_a_death(world, 1);
  if (scene == "rank 1 dies on a device") play_in_vain(world, true);
  if (scene == "rank 1 does not come") play_in_vain(world, false);
  if (scene == "rank 1 does not start") play_a_lonely_start(world);
  if (scene == "contexts") play_contexts(world);
  if (scene == "no group is used") play_groups(world, 0);
  if (scene == "one group is used") play_groups(world, 1);
  if (scene == "two groups are used") play_groups(world, 2);
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
    return fullshard::play(words.at(0), words.at(1), words.size() > 2 ? words[2] : "cpu");
  } catch (const fullshard::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_status();
  }
}
