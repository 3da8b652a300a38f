// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/buffer_broadcast.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/engine/storage/agreement.h"

namespace fullshard::engine {
namespace {

constexpr std::string_view kBuffers = "the buffers that forwards change";
// Of one module. Less than this is sent sooner than asked about, and BatchNorm's kernels write
// their statistics without torch's counting it.
constexpr int64_t kMostSmallBytes = 64 * kKiB;

std::string module_of(const std::string& buffer) {
  const size_t dot = buffer.rfind('.');
  return dot == std::string::npos ? std::string() : buffer.substr(0, dot);
}

// Its bytes, 1-D; a copy unless it is contiguous.
at::Tensor raw_bytes(const at::Tensor& buffer) {
  return buffer.detach().contiguous().view({-1}).view(at::kByte);
}

// The buffers' values, one after the other in `packed`, in their own dtypes and shapes.
std::vector<at::Tensor> unpack(const at::Tensor& packed, const std::vector<at::Tensor>& buffers) {
  std::vector<at::Tensor> values;
  int64_t offset = 0;
  for (const auto& buffer : buffers) {
    const auto bytes = buffer.numel() * buffer.element_size();
    // A copy of its own is aligned as its dtype asks.
    values.push_back(
        packed.narrow(0, offset, bytes).clone().view(buffer.scalar_type()).view(buffer.sizes()));
    offset += bytes;
  }
  return values;
}

}  // namespace

int64_t BufferBroadcast::Module::bytes() const {
  int64_t sum = 0;
  for (const auto& buffer : buffers) sum += buffer.numel() * buffer.element_size();
  return sum;
}

bool BufferBroadcast::Module::is_changed() const {
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i]._version() != versions[i]) return true;
  }
  return false;
}

void BufferBroadcast::Module::note_versions() {
  versions.clear();
  for (const auto& buffer : buffers) versions.push_back(buffer._version());
}

BufferBroadcast::BufferBroadcast(const Communicator& everyone, const WrapPlan& plan)
    : everyone_(everyone) {
  if (is_alone(everyone)) return;
  std::vector<Module> modules;
  std::map<std::string, size_t> places;
  for (const auto& unit : plan.units) {
    for (const auto& buffer : unit.buffers) {
      const auto [place, is_new] = places.emplace(module_of(buffer.name), modules.size());
      if (is_new) modules.emplace_back();
      modules[place->second].buffers.push_back(buffer.tensor);
    }
  }
  for (auto& module : modules) {
    if (module.bytes() > kMostSmallBytes) {
      module.note_versions();
      large_.push_back(std::move(module));
    } else {
      small_.insert(small_.end(), module.buffers.begin(), module.buffers.end());
    }
  }
}

std::vector<bool> BufferBroadcast::changed_anywhere() const {
  std::vector<bool> changed(large_.size(), false);
  if (large_.empty()) return changed;
  const auto count = static_cast<int64_t>(large_.size());
  auto own = at::empty({count}, at::kByte);
  for (size_t i = 0; i < large_.size(); ++i) own.data_ptr<uint8_t>()[i] = large_[i].is_changed();
  auto all = at::empty({everyone_.size() * count}, at::kByte);
  everyone_.all_gather(all, own, kBuffers).wait();
  const auto* flags = all.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < everyone_.size() * count; ++i) {
    if (flags[i] != 0) changed[static_cast<size_t>(i % count)] = true;
  }
  return changed;
}

std::vector<at::Tensor> BufferBroadcast::buffers_to_send() const {
  auto buffers = small_;
  const auto changed = changed_anywhere();
  for (size_t i = 0; i < large_.size(); ++i) {
    if (!changed[i]) continue;
    buffers.insert(buffers.end(), large_[i].buffers.begin(), large_[i].buffers.end());
  }
  return buffers;
}

void BufferBroadcast::synchronise() {
  at::NoGradGuard no_grad;
  auto buffers = buffers_to_send();
  if (buffers.empty()) return;
  std::vector<at::Tensor> parts;
  for (const auto& buffer : buffers) parts.push_back(raw_bytes(buffer));
  const auto packed = at::cat(parts);
  everyone_.broadcast(packed, 0, kBuffers).wait();
  if (everyone_.rank() != 0) at::_foreach_copy_(buffers, unpack(packed, buffers));
  for (auto& module : large_) module.note_versions();
}

}  // namespace fullshard::engine
