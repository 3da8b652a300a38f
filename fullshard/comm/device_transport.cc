#include "fullshard/comm/device_transport.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/ipc_backend.h"
#include "fullshard/comm/nccl_backend.h"
#include "fullshard/comm/self_backend.h"
#include "fullshard/comm/staged_backend.h"

namespace fullshard {
namespace {

// Chooses by where the tensors lie.
class DeviceBackend : public Backend {
 public:
  DeviceBackend(std::shared_ptr<Backend> host, std::shared_ptr<Backend> link)
      : host_(std::move(host)), link_(std::move(link)) {}

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
  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override {
    return of(tensor).broadcast(call, tensor, root);
  }
  void barrier(const Call& call) override { host_->barrier(call); }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return host_->allocate(numel, dtype);
  }

 private:
  Backend& of(const at::Tensor& tensor) { return tensor.is_cpu() ? *host_ : *link_; }

  std::shared_ptr<Backend> host_;
  std::shared_ptr<Backend> link_;
};

class DeviceTransport : public Transport {
 public:
  DeviceTransport(std::shared_ptr<Transport> host, at::Device device, DeviceLink link,
                  std::chrono::milliseconds limit)
      : host_(std::move(host)), device_(device), link_(link), limit_(limit) {}

  std::string_view name() const override {
    return link_ == DeviceLink::nccl ? std::string_view("nccl") : host_->name();
  }
  std::shared_ptr<Backend> make_backend(const std::vector<std::vector<int>>& groups,
                                        const std::string& name) override {
    auto host = host_->make_backend(groups, name);
    auto link = make_link(host, name);
    return std::make_shared<DeviceBackend>(std::move(host), std::move(link));
  }
  void leave(const std::string& reason) noexcept override { host_->leave(reason); }

 private:
  std::shared_ptr<Backend> make_link(const std::shared_ptr<Backend>& host,
                                     const std::string& name) {
    if (link_ == DeviceLink::nccl) return make_nccl_backend(*host, device_, name, limit_);
    if (host->size() == 1) return std::make_shared<SelfBackend>();
    if (link_ == DeviceLink::shared) {
      if (auto link = make_ipc_backend(host, device_, limit_)) return link;
    }
    return std::make_shared<StagedBackend>(host);
  }

  std::shared_ptr<Transport> host_;
  at::Device device_;
  DeviceLink link_;
  std::chrono::milliseconds limit_;
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
  if (!is_built_with_nccl()) {
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

std::shared_ptr<Transport> make_device_transport(std::shared_ptr<Transport> host, at::Device device,
                                                 DeviceLink link, std::chrono::milliseconds limit) {
  return std::make_shared<DeviceTransport>(std::move(host), device, link, limit);
}

}  // namespace fullshard
