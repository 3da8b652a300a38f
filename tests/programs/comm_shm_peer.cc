// SPDX-License-Identifier: Apache-2.0
// One rank of the shm backend as a process of its own: comm_shm_peer FOLDER RANK SIZE SCENARIO.
// Ranks meet through files in FOLDER; what a rank has to say goes to standard output.
#include <ATen/ops/full.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <future>
#include <numeric>
#include <thread>

#include "fullshard/base/error.h"
#include "fullshard/comm/communicator.h"
#include "fullshard/comm/gpu/stream_watch.h"
#include "fullshard/comm/shm/shm_domain.h"
#include "fullshard/comm/store/rendezvous.h"
#include "tests/files.h"

namespace fullshard {
namespace {

class FileRendezvous final : public comm::Rendezvous {
 public:
  explicit FileRendezvous(std::string folder) : folder_(std::move(folder)) {}

  void set(const std::string& key, const std::string& value) override {
    const std::string draft = path_of("draft of " + key);
    std::ofstream(draft) << value;
    check(std::rename(draft.c_str(), path_of(key).c_str()) == 0, "{} cannot be written", key);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout,
                  const std::string& who) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!testing::file_exists(path_of(key))) {
      check(std::chrono::steady_clock::now() < deadline, "{} has not set {}", who, key);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return testing::read_file(path_of(key));
  }

 private:
  std::string path_of(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '-');
    return folder_ + "/" + key;
  }

  std::string folder_;
};

void use_every_collective(const Communicator& world) {
  const float rank = static_cast<float>(world.rank()), size = static_cast<float>(world.size());
  for (const int64_t numel : {3, 50'000}) {
    const auto shard = world.allocate(numel, at::kFloat).fill_(rank);
    const auto full = world.allocate(numel * world.size(), at::kFloat);
    world.all_gather(full, shard).wait();
    for (int peer = 0; peer < world.size(); ++peer) {
      const auto row = full.slice(0, peer * numel, (peer + 1) * numel);
      check((row == static_cast<float>(peer)).all().item<bool>(), "gather of {} is wrong", numel);
    }
    full.fill_(rank + 1);
    world.reduce_scatter(shard, full, {.op = ReduceOp::sum}).wait();
    check((shard == size * (size + 1) / 2).all().item<bool>(), "sum of {} is wrong", numel);
    const auto plain = at::full({numel}, rank);
    world.all_reduce(plain, ReduceOp::max).wait();
    check((plain == size - 1).all().item<bool>(), "maximum of {} is wrong", numel);
    world.broadcast(shard.fill_(rank), world.size() - 1).wait();
    check((shard == size - 1).all().item<bool>(), "broadcast of {} is wrong", numel);
  }
  const auto common = world.allocate_common(world.size(), at::kFloat);
  const auto counters = world.make_counters(1);
  common[world.rank()].fill_(1);
  counters->publish(0, 1);
  counters->wait_for_all(0, 1, "share", "");
  check(common.sum().item<float>() == size, "common memory is not common");
  world.barrier();
}

void die_as_rank_one(const Communicator& world) {
  const auto shard = world.allocate(50'000, at::kFloat).fill_(1);
  const auto full = world.allocate(50'000 * world.size(), at::kFloat);
  world.all_gather(full, shard, "blocks.2").wait();
  world.barrier();
  if (world.rank() == 1) ::kill(::getpid(), SIGKILL);
  world.reduce_scatter(shard, full, {}, "blocks.3").wait();
}

// A call on a link beside the host, as NCCL carries it: it never ends once rank 1 is dead, and only
// the host knows why.
void lose_rank_one_behind_a_link(const Communicator& world, comm::Backend& host) {
  const auto watch = std::make_shared<comm::StreamWatch>(comm::StreamWatch::Options{});
  std::promise<void> let_go;
  comm::WatchedLink link(watch, {.name = "link", .peers = host.make_link_peers(), .let_go = [&] {
                                   let_go.set_value();
                                 }});
  const comm::Call call{
      .sequence = 5, .operation = Operation::all_gather, .group = "world", .unit = "blocks.3"};
  link.end(link.begin(call), [] { return false; });
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  if (world.rank() == 1) ::kill(::getpid(), SIGKILL);
  let_go.get_future().wait();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  std::printf("%.3f\n", waited.count());
  watch->check_sound();
}

// Ranks 0 and 2 begin to wait for the others together: starting a process may take longer than
// that.
void meet_rank_zero_or_two(FileRendezvous& rendezvous, int rank) {
  rendezvous.set("started-" + std::to_string(rank), "");
  rendezvous.get("started-" + std::to_string(2 - rank), std::chrono::minutes(2), "the other rank");
}

int run(const std::string& folder, int rank, int size, const std::string& scenario) {
  Timeouts timeouts;
  FileRendezvous rendezvous(folder);
  if (scenario == "missing") {
    timeouts.init = std::chrono::seconds(1);
    meet_rank_zero_or_two(rendezvous, rank);
  }
  const auto domain = comm::ShmDomain::join(rendezvous, rank, size, timeouts);
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  const auto host = domain->make_backend({all}, "world");
  const Communicator world(host, std::make_shared<Recorder>(rank), "world");
  if (scenario == "die") {
    die_as_rank_one(world);
  } else if (scenario == "die behind a link") {
    lose_rank_one_behind_a_link(world, *host);
  } else {
    use_every_collective(world);
  }
  domain->leave("");
  std::puts("well");
  return 0;
}

}  // namespace
}  // namespace fullshard

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    return fullshard::run(argv[1], std::stoi(argv[2]), std::stoi(argv[3]), argv[4]);
  } catch (const fullshard::Error& error) {
    std::puts(error.what());
    return 1;
  }
}
