// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/activation_store.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace fullshard {

// Shared with what is held, which counts itself out at its end.
struct HostStore::Account {
  Listener listener;
  mutable std::mutex mutex;
  StoreCounters counters;

  void hold(int64_t bytes) {
    {
      const std::lock_guard lock(mutex);
      counters.bytes_put += bytes;
      ++counters.num_put;
      counters.bytes_held += bytes;
      counters.peak_bytes_held = std::max(counters.peak_bytes_held, counters.bytes_held);
    }
    if (listener) listener(bytes);
  }

  void drop(int64_t bytes) {
    {
      const std::lock_guard lock(mutex);
      counters.bytes_held -= bytes;
    }
    if (listener) listener(-bytes);
  }

  void note_got(int64_t bytes) {
    const std::lock_guard lock(mutex);
    counters.bytes_got += bytes;
  }
};

struct HostStore::HostBytes : Held {
  HostBytes(std::shared_ptr<Account> owner, at::Tensor on_host, at::Device from)
      : account(std::move(owner)), bytes(std::move(on_host)), device(from) {
    account->hold(bytes.numel());
  }
  ~HostBytes() override { account->drop(bytes.numel()); }
  HostBytes(const HostBytes&) = delete;
  HostBytes& operator=(const HostBytes&) = delete;

  std::shared_ptr<Account> account;
  at::Tensor bytes;
  at::Device device;
};

HostStore::HostStore(Listener listener, Copies copies)
    : account_(std::make_shared<Account>()), copies_(copies) {
  account_->listener = std::move(listener);
}

HostStore::~HostStore() = default;

std::unique_ptr<ActivationStore::Held> HostStore::put(const at::Tensor& bytes) {
  at::Tensor on_host = bytes;
  if (!bytes.is_cpu() || copies_ == Copies::always) {
    const auto options = bytes.options().device(at::kCPU).pinned_memory(bytes.is_cuda());
    on_host = at::empty(bytes.sizes(), options).copy_(bytes, /*non_blocking=*/true);
  }
  return std::make_unique<HostBytes>(account_, std::move(on_host), bytes.device());
}

at::Tensor HostStore::get(const Held& held) {
  const auto& host = static_cast<const HostBytes&>(held);
  account_->note_got(host.bytes.numel());
  if (host.device.is_cpu()) return host.bytes;
  return host.bytes.to(host.device, /*non_blocking=*/true);
}

StoreCounters HostStore::counters() const {
  const std::lock_guard lock(account_->mutex);
  return account_->counters;
}

}  // namespace fullshard
