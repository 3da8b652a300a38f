// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/world/world.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/backend.h"
#include "fullshard/comm/gpu/device_transport.h"
#include "fullshard/comm/self_backend.h"
#include "fullshard/comm/shm/shm_domain.h"
#include "fullshard/comm/world/fake_backend.h"
#include "fullshard/comm/world/world_impl.h"

namespace fullshard {
namespace {

class SelfTransport : public comm::Transport {
 public:
  std::string_view name() const override { return "self"; }
  std::shared_ptr<comm::Backend> make_backend(const std::vector<std::vector<int>>&,
                                              const std::string&) override {
    return std::make_shared<comm::SelfBackend>();
  }
  void leave(const std::string&) noexcept override {}
};

class FakeTransport : public comm::Transport {
 public:
  explicit FakeTransport(int rank) : rank_(rank) {}
  std::string_view name() const override { return "fake"; }
  std::shared_ptr<comm::Backend> make_backend(const std::vector<std::vector<int>>& groups,
                                              const std::string&) override {
    for (const std::vector<int>& group : groups) {
      const auto place = std::find(group.begin(), group.end(), rank_);
      if (place == group.end()) continue;
      return std::make_shared<comm::FakeBackend>(static_cast<int>(place - group.begin()),
                                                 static_cast<int>(group.size()));
    }
    fail("fake world: rank {} is in none of the {} groups", rank_, groups.size());
  }
  void leave(const std::string&) noexcept override {}

 private:
  int rank_;
};

class ShmTransport : public comm::Transport {
 public:
  explicit ShmTransport(std::shared_ptr<comm::ShmDomain> domain) : domain_(std::move(domain)) {}
  std::string_view name() const override { return "shm"; }
  std::shared_ptr<comm::Backend> make_backend(const std::vector<std::vector<int>>& groups,
                                              const std::string& name) override {
    return domain_->make_backend(groups, name);
  }
  void leave(const std::string& reason) noexcept override { domain_->leave(reason); }

 private:
  std::shared_ptr<comm::ShmDomain> domain_;
};

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) ranks[static_cast<size_t>(rank)] = rank;
  return ranks;
}

void check_groups(const std::vector<std::vector<int>>& groups, int size, const std::string& name) {
  std::vector<int> members;
  for (const std::vector<int>& group : groups) {
    check(group.size() == groups.front().size(),
          "split into '{}': groups of {} and {} ranks; all groups must have the same size", name,
          groups.front().size(), group.size());
    members.insert(members.end(), group.begin(), group.end());
  }
  std::sort(members.begin(), members.end());
  check(members == all_ranks(size),
        "split into '{}': the groups hold the ranks [{}], expected each of the {} ranks once", name,
        fmt::join(members, ", "), size);
}

}  // namespace

std::shared_ptr<comm::Transport> make_self_transport() { return std::make_shared<SelfTransport>(); }

std::shared_ptr<comm::Transport> make_shm_transport(std::shared_ptr<comm::ShmDomain> domain) {
  return std::make_shared<ShmTransport>(std::move(domain));
}

std::vector<int> number_hosts(const std::vector<std::string>& names) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const std::string& name : names) {
    hosts.push_back(numbers.emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

World::Impl::Impl(int rank_, std::vector<int> hosts_, const Timeouts& timeouts_,
                  std::shared_ptr<Recorder> recorder_, std::shared_ptr<comm::Transport> transport_,
                  at::Device device_)
    : rank(rank_),
      hosts(std::move(hosts_)),
      timeouts(timeouts_),
      recorder(std::move(recorder_)),
      transport(std::move(transport_)),
      device(device_),
      communicator(transport->make_backend({all_ranks(static_cast<int>(hosts.size()))}, "world"),
                   recorder, "world") {}

World::Impl::~Impl() { leave(std::uncaught_exceptions() > 0 ? "it ended with an exception" : ""); }

void World::Impl::leave(const std::string& reason) noexcept {
  if (!std::exchange(has_left_, true)) transport->leave(reason);
}

World::World(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

World World::single(at::Device device) {
  auto transport = make_self_transport();
  if (!device.is_cpu()) {
    transport = comm::make_device_transport(
        std::move(transport), {.device = device, .link = comm::DeviceLink::self, .hosts = {0}});
  }
  return World(std::make_shared<Impl>(0, std::vector<int>{0}, Timeouts{},
                                      std::make_shared<Recorder>(0), std::move(transport), device));
}

World World::fake(int size, int rank, int ranks_per_host) {
  check(size > 0, "World::fake: size is {}, expected at least 1", size);
  check(rank >= 0 && rank < size, "World::fake: rank is {}, expected 0 to {}", rank, size - 1);
  check(ranks_per_host > 0, "World::fake: ranks_per_host is {}, expected at least 1",
        ranks_per_host);
  std::vector<int> hosts;
  for (int other = 0; other < size; ++other) hosts.push_back(other / ranks_per_host);
  return World(std::make_shared<Impl>(rank, std::move(hosts), Timeouts{},
                                      std::make_shared<Recorder>(rank),
                                      std::make_shared<FakeTransport>(rank)));
}

int World::rank() const { return impl_->rank; }
int World::size() const { return static_cast<int>(impl_->hosts.size()); }

int World::local_rank() const {
  const auto own = impl_->hosts.begin() + rank();
  return static_cast<int>(std::count(impl_->hosts.begin(), own, *own));
}

int World::local_size() const {
  return static_cast<int>(std::count(impl_->hosts.begin(), impl_->hosts.end(), host_of(rank())));
}

int World::num_hosts() const {
  return *std::max_element(impl_->hosts.begin(), impl_->hosts.end()) + 1;
}

int World::ranks_per_host() const {
  std::vector<int> counts(static_cast<size_t>(num_hosts()), 0);
  for (const int host : impl_->hosts) ++counts[static_cast<size_t>(host)];
  const bool are_equal = std::count(counts.begin(), counts.end(), counts.front()) == num_hosts();
  return are_equal ? counts.front() : 0;
}

int World::host_of(int rank) const {
  check(rank >= 0 && rank < size(), "host_of: rank is {}, expected 0 to {}", rank, size() - 1);
  return impl_->hosts[static_cast<size_t>(rank)];
}

std::string_view World::backend() const { return impl_->transport->name(); }
at::Device World::device() const { return impl_->device; }
const Timeouts& World::timeouts() const { return impl_->timeouts; }
const Communicator& World::communicator() const { return impl_->communicator; }
Recorder& World::recorder() const { return *impl_->recorder; }
void World::check_sound() const { impl_->transport->check_sound(); }

Communicator World::split(int colour, const std::string& group) const {
  check(backend() != "fake" || size() == 1,
        "split into '{}': a fake rank knows no other rank's colour; give the groups instead",
        group);
  const at::Tensor own = at::full({1}, colour, at::kLong);
  const at::Tensor colours = at::empty({size()}, at::kLong);
  communicator().all_gather(colours, own, group).wait();
  std::map<int64_t, std::vector<int>> by_colour;
  for (int rank = 0; rank < size(); ++rank) {
    by_colour[colours.const_data_ptr<int64_t>()[rank]].push_back(rank);
  }
  std::vector<std::vector<int>> groups;
  for (auto& [value, ranks] : by_colour) groups.push_back(std::move(ranks));
  return split(groups, group);
}

Communicator World::split(const std::vector<std::vector<int>>& groups,
                          const std::string& group) const {
  check_groups(groups, size(), group);
  return Communicator(impl_->transport->make_backend(groups, group), impl_->recorder, group);
}

}  // namespace fullshard
