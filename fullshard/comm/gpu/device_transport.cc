// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gpu/device_transport.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/gpu/ipc_backend.h"
#include "fullshard/comm/gpu/nccl_backend.h"
#include "fullshard/comm/gpu/staged_backend.h"
#include "fullshard/comm/gpu/stream_watch.h"
#include "fullshard/comm/self_backend.h"
#include "fullshard/tensor/device_runtime.h"

namespace fullshard::comm {
namespace {

// Chooses by where the tensors lie. Every call asks first whether the links are sound: after a
// failure the other ranks have been told that this one is gone, and would only say so.
class DeviceBackend : public Backend {
 public:
  DeviceBackend(std::shared_ptr<Backend> host, std::shared_ptr<Backend> link,
                std::shared_ptr<const StreamWatch> watch)
      : host_(std::move(host)), link_(std::move(link)), watch_(std::move(watch)) {}

  std::string_view name() const override { return link_->name(); }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override {
    return of(rows).all_gather(call, rows, shard);
  }
  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override {
    return of(rows).reduce_scatter(call, shard, rows, options);
  }
  Work all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) override {
    return of(sent).all_to_all(call, received, sent);
  }
  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override {
    return of(tensor).broadcast(call, tensor, root);
  }
  void barrier(const Call& call) override {
    check_sound();
    host_->barrier(call);
  }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return host_->allocate(numel, dtype);
  }
  void warm_up(const Call& call, int64_t bytes) override { link_->warm_up(call, bytes); }

 private:
  void check_sound() const {
    if (watch_) watch_->check_sound();
  }
  Backend& of(const at::Tensor& tensor) {
    check_sound();
    return tensor.is_cpu() ? *host_ : *link_;
  }

  std::shared_ptr<Backend> host_;
  std::shared_ptr<Backend> link_;
  std::shared_ptr<const StreamWatch> watch_;  // none for one rank
};

class DeviceTransport : public Transport {
 public:
  DeviceTransport(std::shared_ptr<Transport> host, const DeviceTransportOptions& options)
      : host_(std::move(host)), options_(options) {
    const bool has_streams = options.link == DeviceLink::nccl || options.link == DeviceLink::shared;
    if (!has_streams || options.hosts.size() == 1) return;
    watch_ = std::make_shared<StreamWatch>(StreamWatch::Options{
        .enter_thread = [device = options.device] { enter_device(device); },
        .on_failure = [host = host_](const std::string& why) { host->leave(why); }});
  }

  std::string_view name() const override {
    return options_.link == DeviceLink::nccl ? std::string_view("nccl") : host_->name();
  }
  std::shared_ptr<Backend> make_backend(const std::vector<std::vector<int>>& groups,
                                        const std::string& name) override {
    auto host = host_->make_backend(groups, name);
    auto link = make_link(host, groups, name);
    return std::make_shared<DeviceBackend>(std::move(host), std::move(link), watch_);
  }
  void leave(const std::string& reason) noexcept override { host_->leave(reason); }
  void check_sound() const override {
    if (watch_) watch_->check_sound();
  }

 private:
  // No communicator for one rank: it has nobody to talk to.
  std::shared_ptr<Backend> make_link(const std::shared_ptr<Backend>& host,
                                     const std::vector<std::vector<int>>& groups,
                                     const std::string& name) {
    if (host->size() == 1) return std::make_shared<SelfBackend>();
    if (options_.link == DeviceLink::nccl) {
      return make_nccl_backend(host, {.device = options_.device,
                                      .group = name,
                                      .hosts = hosts_of_own(groups),
                                      .sums = options_.sums,
                                      .watch = watch_});
    }
    if (options_.link == DeviceLink::shared) {
      if (auto link = make_ipc_backend(host, options_.device, watch_)) return link;
      warn_of_staging();
    }
    return std::make_shared<StagedBackend>(host);
  }

  std::vector<int> hosts_of_own(const std::vector<std::vector<int>>& groups) const {
    std::vector<int> hosts;
    for (const auto& ranks : groups) {
      if (std::find(ranks.begin(), ranks.end(), options_.rank) == ranks.end()) continue;
      for (const int rank : ranks) hosts.push_back(options_.hosts[static_cast<size_t>(rank)]);
    }
    return hosts;
  }

  void warn_of_staging() {
    if (options_.rank != 0 || std::exchange(has_warned_, true)) return;
    spdlog::warn(
        "world: ranks cannot see each other's GPU memory here (CUDA IPC), so collectives go "
        "through host memory, which is slow; start one rank per GPU to use nccl");
  }

  std::shared_ptr<Transport> host_;
  DeviceTransportOptions options_;
  std::shared_ptr<StreamWatch> watch_;
  bool has_warned_ = false;
};

[[noreturn]] void refuse_device(const std::string& wanted, const std::string& why) {
  fail_as(ErrorKind::usage, "device '{}': {}", wanted, why);
}

int checked_index(const std::string& wanted, int local_rank, int num_devices) {
  if (wanted == "cuda") return local_rank % num_devices;
  int index = -1;
  const char* end = wanted.data() + wanted.size();
  const auto read = std::from_chars(wanted.data() + 5, end, index);
  if (read.ec != std::errc() || read.ptr != end || index < 0 || index >= num_devices) {
    refuse_device(wanted, fmt::format("{} GPU{} visible here, counted from 0", num_devices,
                                      num_devices == 1 ? " is" : "s are"));
  }
  return index;
}

}  // namespace

int num_cuda_devices() {
  return at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0;
}

at::Device choose_device(const std::string& wanted, int local_rank) {
  if (wanted == "cpu") return at::kCPU;
  if (wanted != "cuda" && !wanted.starts_with("cuda:")) {
    refuse_device(wanted, "expected cpu, cuda or cuda:N");
  }
  if (!tensor::has_device_kernels()) {
    refuse_device(wanted, "this build of Fullshard has no CUDA; build with the preset cuda");
  }
  const int num_devices = num_cuda_devices();
  if (num_devices == 0) {
    refuse_device(wanted,
                  "no GPU is visible: is the driver loaded, and CUDA_VISIBLE_DEVICES not empty?");
  }
  const int index = checked_index(wanted, local_rank, num_devices);
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
}

void enter_device(at::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

std::shared_ptr<Transport> make_device_transport(std::shared_ptr<Transport> host,
                                                 const DeviceTransportOptions& options) {
  return std::make_shared<DeviceTransport>(std::move(host), options);
}

}  // namespace fullshard::comm
