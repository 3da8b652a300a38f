// SPDX-License-Identifier: Apache-2.0
// What a forward depends on besides its arguments and parameters: where the random generators
// stand, and autocast. A replay sees both as the first pass did.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>
#include <vector>

namespace fullshard::nn {

// The CPU and the devices of these tensors, each once: whose generators and autocast a body may
// use.
std::vector<at::Device> devices_of(const std::vector<at::Tensor>& tensors);

// The states of the devices' default generators. They belong to the process: bodies that draw from
// them on several threads at once cannot be replayed. Another kind of device needs nothing here:
// its generator is found by the device.
class RandomState {
 public:
  static RandomState now(const std::vector<at::Device>& devices);

  // Of the same devices.
  RandomState again() const;
  void restore() const;
  bool operator==(const RandomState& other) const;

 private:
  struct Entry {
    at::Device device;
    at::Tensor state;
  };
  std::vector<Entry> entries_;
};

// Sets the state for its scope, then puts back what was there before; nothing: does nothing.
class RandomStateScope {
 public:
  explicit RandomStateScope(const std::optional<RandomState>& state);
  ~RandomStateScope();
  RandomStateScope(const RandomStateScope&) = delete;
  RandomStateScope& operator=(const RandomStateScope&) = delete;

 private:
  std::optional<RandomState> before_;
};

// Autocast of this thread.
class AutocastState {
 public:
  static AutocastState now(const std::vector<at::Device>& devices);

  AutocastState again() const;
  void restore() const;
  bool is_enabled() const;  // on any of the devices

 private:
  struct Entry {
    at::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };
  std::vector<Entry> entries_;
  bool cache_ = true;
};

// Around the first pass, which runs without gradients: casts made in it must not be found in
// autocast's cache by code that needs the gradient of the cast tensor.
class AutocastRecordScope {
 public:
  AutocastRecordScope();
  ~AutocastRecordScope();
  AutocastRecordScope(const AutocastRecordScope&) = delete;
  AutocastRecordScope& operator=(const AutocastRecordScope&) = delete;

 private:
  bool cache_;
};

// Around the replay: autocast as it was, with a cache that starts and ends empty.
class AutocastReplayScope {
 public:
  explicit AutocastReplayScope(const AutocastState& state);
  ~AutocastReplayScope();
  AutocastReplayScope(const AutocastReplayScope&) = delete;
  AutocastReplayScope& operator=(const AutocastReplayScope&) = delete;

 private:
  AutocastState before_;
  bool enabled_;
};

}  // namespace fullshard::nn
