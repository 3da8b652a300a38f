// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/replay_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace fullshard::nn {
namespace {

namespace autocast = at::autocast;

void add_once(std::vector<at::Device>& devices, at::Device device) {
  if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
}

}  // namespace

std::vector<at::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Device> devices{at::Device(at::kCPU)};
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_cuda()) add_once(devices, tensor.device());
  }
  return devices;
}

RandomState RandomState::now(const std::vector<at::Device>& devices) {
  RandomState state;
  for (const at::Device device : devices) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    state.entries_.push_back({device, generator.get_state()});
  }
  return state;
}

RandomState RandomState::again() const {
  std::vector<at::Device> devices;
  for (const Entry& entry : entries_) devices.push_back(entry.device);
  return now(devices);
}

void RandomState::restore() const {
  for (const Entry& entry : entries_) {
    at::Generator generator = at::globalContext().defaultGenerator(entry.device);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(entry.state);
  }
}

bool RandomState::operator==(const RandomState& other) const {
  return std::ranges::equal(entries_, other.entries_, [](const Entry& a, const Entry& b) {
    return a.device == b.device && at::equal(a.state, b.state);
  });
}

RandomStateScope::RandomStateScope(const std::optional<RandomState>& state) {
  if (!state) return;
  before_ = state->again();
  state->restore();
}

RandomStateScope::~RandomStateScope() {
  if (before_) before_->restore();
}

AutocastState AutocastState::now(const std::vector<at::Device>& devices) {
  AutocastState state;
  for (const at::Device device : devices) {
    const auto type = device.type();
    state.entries_.push_back(
        {type, autocast::is_autocast_enabled(type), autocast::get_autocast_dtype(type)});
  }
  state.cache_ = autocast::is_autocast_cache_enabled();
  return state;
}

AutocastState AutocastState::again() const {
  std::vector<at::Device> devices;
  for (const Entry& entry : entries_) devices.emplace_back(entry.device);
  return now(devices);
}

void AutocastState::restore() const {
  for (const Entry& entry : entries_) {
    autocast::set_autocast_enabled(entry.device, entry.enabled);
    autocast::set_autocast_dtype(entry.device, entry.dtype);
  }
  autocast::set_autocast_cache_enabled(cache_);
}

bool AutocastState::is_enabled() const {
  return std::ranges::any_of(entries_, [](const Entry& entry) { return entry.enabled; });
}

AutocastRecordScope::AutocastRecordScope() : cache_(autocast::is_autocast_cache_enabled()) {
  autocast::set_autocast_cache_enabled(false);
}

AutocastRecordScope::~AutocastRecordScope() { autocast::set_autocast_cache_enabled(cache_); }

AutocastReplayScope::AutocastReplayScope(const AutocastState& state)
    : before_(state.again()), enabled_(state.is_enabled()) {
  state.restore();
  if (!enabled_) return;
  autocast::increment_nesting();  // a body's own autocast region is an inner one, as it was
  autocast::clear_cache();
}

AutocastReplayScope::~AutocastReplayScope() {
  before_.restore();
  if (!enabled_) return;
  autocast::decrement_nesting();
  autocast::clear_cache();
}

}  // namespace fullshard::nn
