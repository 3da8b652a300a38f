// SPDX-License-Identifier: Apache-2.0
// Where offloaded activations lie between forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace fullshard {

// Calls come from the thread of the forward and from those of the backward, also at once.
class ActivationStore {
 public:
  // What is held; its end is the end of the bytes. May outlive the store.
  class Held {
   public:
    virtual ~Held() = default;
  };

  virtual ~ActivationStore() = default;

  // `bytes` is 1-D, of bytes, on the device that computes. Whoever put it does not write it again.
  virtual std::unique_ptr<Held> put(const at::Tensor& bytes) = 0;
  // The same bytes on the same device, for reading only.
  virtual at::Tensor get(const Held& held) = 0;
};

struct StoreCounters {
  int64_t bytes_put = 0;
  int64_t bytes_got = 0;
  int64_t bytes_held = 0;
  int64_t peak_bytes_held = 0;
  int64_t num_put = 0;
};

// Host memory, pinned for what comes from a CUDA device. Copies are ordered by the device's current
// stream, which backward shares with forward.
class HostStore : public ActivationStore {
 public:
  // What lies in host memory already is where it should be: `when_away` only keeps it there.
  enum class Copies { when_away, always };
  using Listener = std::function<void(int64_t delta_bytes)>;  // as bytes come and go

  explicit HostStore(Listener listener = {}, Copies copies = Copies::when_away);
  ~HostStore() override;

  std::unique_ptr<Held> put(const at::Tensor& bytes) override;
  at::Tensor get(const Held& held) override;

  StoreCounters counters() const;

 private:
  struct Account;
  struct HostBytes;
  std::shared_ptr<Account> account_;
  Copies copies_;
};

}  // namespace fullshard
