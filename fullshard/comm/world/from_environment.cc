// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/host_name.h"
#include "fullshard/base/rank_notice.h"
#include "fullshard/comm/environment.h"
#include "fullshard/comm/file_limit.h"
#include "fullshard/comm/gloo/gloo_transport.h"
#include "fullshard/comm/gpu/device_transport.h"
#include "fullshard/comm/gpu/nccl_settings.h"
#include "fullshard/comm/shm/shm_domain.h"
#include "fullshard/comm/store/tcp_connect.h"
#include "fullshard/comm/world/roll_call.h"
#include "fullshard/comm/world/world_impl.h"

namespace fullshard {
namespace {

// NCCL's own variables; those of launchers are LauncherEnvironment's.
std::optional<std::string> nccl_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

// Ranks with the same identity can share memory: one boot of one machine, and one network
// namespace, since the sockets over which memory is handed out live there.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network = {};
  ::stat("/proc/self/ns/net", &network);
  // NCCL's own way to say that processes of one machine are to be taken as hosts of their own.
  return fmt::format("{} {} {} {}", boot, base::host_name(), network.st_ino,
                     nccl_variable("NCCL_HOSTID").value_or(""));
}

bool is_one_host(const std::vector<int>& hosts) {
  for (const int host : hosts) {
    if (host != 0) return false;
  }
  return true;
}

// Other hosts must reach the address that a rank tells them, which its host's name need not give.
comm::GlooDevice device_for(const comm::Environment& environment, bool loopback) {
  if (loopback) return {.address = "127.0.0.1"};
  if (!environment.interface.empty()) return {.interface = environment.interface};
  return {.address =
              comm::own_address_towards(environment.master_address, environment.master_port)};
}

// This host's ranks, where it is one of several and holds more than one.
std::shared_ptr<comm::ShmDomain> join_host(const comm::GlooOptions& options, comm::Store& store) {
  const std::vector<int> here = comm::ranks_of_host(options.hosts, options.rank);
  if (options.loopback || here.size() == 1) return nullptr;
  const auto place = std::find(here.begin(), here.end(), options.rank) - here.begin();
  return comm::ShmDomain::join(*store.under(fmt::format("shm of rank {}", here.front())),
                               static_cast<int>(place), static_cast<int>(here.size()),
                               options.timeouts, here);
}

std::shared_ptr<comm::Transport> make_transport(const std::string& wanted,
                                                comm::GlooOptions options,
                                                std::shared_ptr<comm::Store> store,
                                                std::shared_ptr<Recorder> recorder) {
  // Host tensors of ranks that use nccl travel as they would without it.
  if (wanted == "gloo" || (wanted != "shm" && !options.loopback)) {
    options.domain = join_host(options, *store);
    return comm::make_gloo_transport(options, std::move(store), std::move(recorder));
  }
  check(options.loopback,
        "world: backend shm needs all ranks on one host, but they are on {}; use gloo",
        *std::max_element(options.hosts.begin(), options.hosts.end()) + 1);
  return make_shm_transport(comm::ShmDomain::join(*store->under("shm"), options.rank,
                                                  static_cast<int>(options.hosts.size()),
                                                  options.timeouts));
}

void check_local(const comm::WorldOptions& options, const World& world) {
  check(!options.local_rank || *options.local_rank == world.local_rank(),
        "world: options.local_rank is {}, but rank {} is number {} on its host",
        options.local_rank.value_or(0), world.rank(), world.local_rank());
  check(!options.local_size || *options.local_size == world.local_size(),
        "world: options.local_size is {}, but {} ranks are on the host of rank {}",
        options.local_size.value_or(0), world.local_size(), world.rank());
}

void check_backend(const comm::WorldOptions& options) {
  const std::vector<std::string> known = {"auto", "shm", "gloo", "nccl"};
  if (std::find(known.begin(), known.end(), options.backend) == known.end()) {
    fail_as(ErrorKind::usage, "world: backend is '{}', expected auto, shm, gloo or nccl",
            options.backend);
  }
  if (options.backend == "nccl" && options.device == "cpu") {
    fail_as(ErrorKind::usage,
            "world: backend nccl moves the memory of GPUs, but the device is cpu; set device to "
            "cuda, or use auto");
  }
}

// The number of a rank among those of its host.
int place_of(int rank, const std::vector<int>& hosts) {
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank, hosts[rank]));
}

// A device that is there, or why it is not; what the other ranks have to know of it.
struct OwnDevice {
  at::Device device = at::kCPU;
  std::string identity = {};
  std::optional<Error> problem = {};
};

OwnDevice find_device(const std::string& wanted, int local_rank) {
  OwnDevice own;
  try {
    own.device = comm::choose_device(wanted, local_rank);
    comm::enter_device(own.device);
    own.identity = comm::device_identity(own.device);
  } catch (const Error& error) {
    own.problem = error;
  } catch (const std::exception& error) {  // of CUDA itself, with a backtrace below
    const std::string text = error.what();
    own.problem = Error(fmt::format("device '{}': {}", wanted, text.substr(0, text.find('\n'))));
  }
  return own;
}

// What a rank tells the others: its GPU, or after a '!' why it has none, lest they wait for it.
std::string told_of(const OwnDevice& own) {
  if (!own.problem) return own.identity;
  const std::string text = own.problem->what();
  return "!" + text.substr(0, text.find('\n'));
}

// Where every rank decides the same from what all have told.
std::optional<comm::LinkDecision> decide(const std::vector<std::string>& told,
                                         const std::vector<int>& hosts, const OwnDevice& own,
                                         const std::string& backend) {
  if (own.problem) throw *own.problem;
  std::vector<comm::RankDevice> devices;
  bool has_gpus = false;
  for (size_t rank = 0; rank < told.size(); ++rank) {
    check(!told[rank].starts_with('!'), "world: rank {} has no device to compute on: {}", rank,
          told[rank].substr(std::min<size_t>(1, told[rank].size())));
    has_gpus = has_gpus || !told[rank].empty();
    devices.push_back({hosts[rank], told[rank]});
  }
  return has_gpus ? std::optional(comm::decide_link(devices, backend)) : std::nullopt;
}

// Before NCCL starts, and before threads of it could read the environment.
void set_for_nccl(const std::string& interface) {
  for (const auto& [name, value] : comm::nccl_settings(interface, nccl_variable)) {
    ::setenv(name.c_str(), value.c_str(), 0);
  }
}

std::shared_ptr<comm::Transport> over_devices(std::shared_ptr<comm::Transport> host,
                                              comm::Store& store, const comm::WorldOptions& options,
                                              const comm::Environment& environment,
                                              const std::vector<int>& hosts, const OwnDevice& own) {
  const auto told =
      comm::exchange_texts(store, environment, "device", told_of(own), options.timeouts.init);
  std::optional<comm::LinkDecision> decision;
  try {
    decision = decide(told, hosts, own, options.backend);
  } catch (const Error&) {
    comm::part_in_failure(store, environment);
    throw;
  }
  if (!decision) return host;
  if (!decision->warning.empty() && environment.rank == 0) {
    spdlog::warn("world: {}", decision->warning);
  }
  if (decision->link == comm::DeviceLink::nccl) set_for_nccl(environment.nccl_interface);
  return comm::make_device_transport(std::move(host), {.device = own.device,
                                                       .link = decision->link,
                                                       .rank = environment.rank,
                                                       .hosts = hosts,
                                                       .sums = environment.device_sums});
}

World alone(const comm::WorldOptions& options) {
  const at::Device device = comm::choose_device(options.device, 0);
  comm::enter_device(device);
  if (device.is_cpu() || options.backend != "nccl") return World::single(device);
  return World(std::make_shared<World::Impl>(
      0, std::vector<int>{0}, options.timeouts, std::make_shared<Recorder>(0),
      comm::make_device_transport(make_self_transport(),
                                  {.device = device, .link = comm::DeviceLink::nccl, .hosts = {0}}),
      device));
}

}  // namespace

World World::from_environment(const comm::WorldOptions& options) {
  check_backend(options);
  const auto launcher = base::LauncherEnvironment::of_process();
  const comm::Environment environment = comm::read_environment(options, launcher);
  if (environment.size == 1) return alone(options);

  base::begin_to_meet(launcher.meeting);
  const Timeouts& timeouts = options.timeouts;
  const int64_t file_limit = comm::raise_file_limit();
  auto store = comm::open_store(environment, timeouts.init);
  comm::agree_on_size(*store, environment, timeouts.init);
  comm::GlooOptions members{.rank = environment.rank,
                            .hosts = number_hosts(comm::exchange_texts(
                                *store, environment, "host", host_identity(), timeouts.init)),
                            .timeouts = timeouts};
  comm::check_file_limit(comm::files_needed(members.hosts, environment.rank,
                                            environment.rank == 0 && !environment.agent_store),
                         file_limit, environment.size);
  members.loopback = is_one_host(members.hosts);
  members.device = device_for(environment, members.loopback);
  auto recorder = std::make_shared<Recorder>(environment.rank);
  const OwnDevice own = find_device(options.device, place_of(environment.rank, members.hosts));
  auto transport = over_devices(make_transport(options.backend, members, store, recorder), *store,
                                options, environment, members.hosts, own);
  const World world(std::make_shared<Impl>(environment.rank, members.hosts, timeouts, recorder,
                                           std::move(transport), own.device));
  // The store goes with rank 0: nobody leaves before all have what they need from it.
  world.communicator().barrier("join");
  base::tell_launcher(launcher.meeting, base::RankNotice::has_met);
  world.recorder().reset_totals();
  check_local(options, world);
  return world;
}

}  // namespace fullshard
