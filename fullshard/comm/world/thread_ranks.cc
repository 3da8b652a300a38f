// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/gloo/gloo_transport.h"
#include "fullshard/comm/shm/shm_domain.h"
#include "fullshard/comm/world/world_impl.h"

namespace fullshard {
namespace {

// Makes the rank's part of the world; called on its own thread, since it may wait for the others.
using MakeTransport =
    std::function<std::shared_ptr<comm::Transport>(int rank, std::shared_ptr<Recorder> recorder)>;

// The first error by time. A rank notes its error before it tells the others that it leaves, so
// errors that are mere consequences always come second.
class FirstError {
 public:
  void note(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

std::vector<int> hosts_of(const ThreadRanks& options) {
  if (!options.hosts.empty()) return options.hosts;
  std::vector<int> hosts;
  for (int rank = 0; rank < options.ranks; ++rank) {
    hosts.push_back(options.ranks_per_host > 0 ? rank / options.ranks_per_host : 0);
  }
  return hosts;
}

// Of each rank, where there are several hosts and this one shares its host.
std::vector<std::shared_ptr<comm::ShmDomain>> domains_of(const std::vector<int>& hosts,
                                                         const Timeouts& timeouts) {
  std::vector<std::shared_ptr<comm::ShmDomain>> domains(hosts.size());
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    const std::vector<int> here = comm::ranks_of_host(hosts, rank);
    if (here.size() == hosts.size() || here.front() != rank || here.size() == 1) continue;
    auto made = comm::ShmDomain::for_threads(static_cast<int>(here.size()), timeouts, here);
    for (size_t i = 0; i < here.size(); ++i) domains[static_cast<size_t>(here[i])] = made[i];
  }
  return domains;
}

MakeTransport transports_of(const ThreadRanks& options) {
  if (options.backend == "gloo") {
    const std::vector<int> hosts = hosts_of(options);
    return [store = comm::make_thread_store(), options, hosts,
            domains = domains_of(hosts, options.timeouts)](int rank,
                                                           std::shared_ptr<Recorder> recorder) {
      return comm::make_gloo_transport({.rank = rank,
                                        .hosts = hosts,
                                        .loopback = true,
                                        .device = {.address = "127.0.0.1"},
                                        .timeouts = options.timeouts,
                                        .domain = domains[static_cast<size_t>(rank)]},
                                       store, std::move(recorder));
    };
  }
  check(options.backend == "shm", "run_ranks: backend is '{}', expected shm or gloo",
        options.backend);
  check(options.ranks_per_host == 0 || options.ranks_per_host >= options.ranks,
        "run_ranks: {} ranks per host of {} ranks, but shm ranks share one host; use gloo",
        options.ranks_per_host, options.ranks);
  check(options.hosts.empty(),
        "run_ranks: shm ranks share one host, but hosts are given; use gloo");
  return [domains = comm::ShmDomain::for_threads(options.ranks, options.timeouts)](
             int rank, const std::shared_ptr<Recorder>&) {
    return make_shm_transport(domains[static_cast<size_t>(rank)]);
  };
}

std::string reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    const std::string text = e.what();
    return text.substr(0, text.find('\n'));  // torch's errors carry a backtrace below
  } catch (...) {
    return "an exception of unknown type";
  }
}

void run_rank(const ThreadRanks& options, const MakeTransport& make_transport, int rank,
              const std::function<void(const World&)>& body, FirstError& first) {
  std::shared_ptr<comm::Transport> transport;
  std::shared_ptr<World::Impl> impl;
  try {
    auto recorder = std::make_shared<Recorder>(rank);
    transport = make_transport(rank, recorder);
    impl = std::make_shared<World::Impl>(rank, hosts_of(options), options.timeouts, recorder,
                                         transport);
    body(World(impl));
    impl->leave("");
  } catch (...) {
    first.note(std::current_exception());
    const std::string reason = reason_of(std::current_exception());
    if (impl) {
      impl->leave(reason);
    } else if (transport) {
      transport->leave(reason);
    }
  }
}

}  // namespace

void run_ranks(const ThreadRanks& options, const std::function<void(const World&)>& body) {
  check(options.ranks > 0, "run_ranks: {} ranks, expected at least 1", options.ranks);
  check(options.hosts.empty() || options.hosts.size() == static_cast<size_t>(options.ranks),
        "run_ranks: hosts of {} ranks, but there are {}", options.hosts.size(), options.ranks);
  const MakeTransport make_transport = transports_of(options);
  FirstError first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] { run_rank(options, make_transport, rank, body, first); });
  }
  for (std::thread& thread : threads) thread.join();
  first.rethrow();
}

}  // namespace fullshard
