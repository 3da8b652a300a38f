// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "fullshard/checkpoint/model_io.h"
#include "fullshard/checkpoint/model_tensors.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/new_values.h"
#include "fullshard/stored/blocks/work_items.h"

namespace fullshard {
namespace {

// Narrower masters round what wider ones would hold, so that precision does not change the draw.
at::ScalarType made_in(at::ScalarType dtype) {
  const bool is_narrow = at::isFloatingType(dtype) && dtype != at::kDouble;
  return is_narrow ? at::kFloat : dtype;
}

void warn_of_buffers(const engine::Engine& engine) {
  const auto& buffers = engine.plan().deferred_buffers;
  if (buffers.empty() || engine.mesh().world().rank() != 0) return;
  spdlog::warn(
      "initialise_weights: these buffers were deferred and hold zeros: {}; build what a "
      "constructor computes in a fullshard::RealScope",
      fmt::join(buffers, ", "));
}

// Where a worker makes its tensors, one after the other: pages that are there already.
class Room {
 public:
  at::Tensor of(at::IntArrayRef shape, at::ScalarType dtype) {
    const int64_t numel = c10::multiply_integers(shape);
    const int64_t bytes = numel * static_cast<int64_t>(at::elementSize(dtype));
    if (!memory_.defined() || memory_.numel() < bytes) {
      memory_.reset();
      memory_ = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
    }
    return memory_.narrow(0, 0, bytes).view(dtype).view(shape);
  }

 private:
  at::Tensor memory_;
};

// This rank's part where a tensor can be made there at once; undefined where it cannot.
at::Tensor made_in_place(const checkpoint::ModelTensor& tensor, const at::Tensor& own) {
  const bool is_all = own.numel() == c10::multiply_integers(tensor.shape);
  const bool is_there = own.is_cpu() && own.is_contiguous() && own.scalar_type() == tensor.dtype &&
                        made_in(tensor.dtype) == tensor.dtype;
  return is_all && is_there ? own.view(tensor.shape) : at::Tensor();
}

void initialise(const checkpoint::ModelTensor& tensor, uint64_t seed, const Initialise& make,
                Room& room) {
  const at::NoGradGuard no_grad;
  if (tensor.is_buffer) return;
  const auto part = tensor.own_part();
  if (!part) return;
  const auto& name = tensor.names.front();
  auto made = tensor.whole.defined() ? at::Tensor() : made_in_place(tensor, part->values);
  const at::Tensor in_place = made;
  if (!in_place.defined()) made = room.of(tensor.shape, made_in(tensor.dtype));
  make(name, made, seed_of_tensor(seed, name));
  if (in_place.defined() && made.is_same(in_place)) return;
  if (tensor.whole.defined()) {
    tensor.whole.copy_(made);
  } else {
    part->values.copy_(made.contiguous().view({-1}).narrow(0, part->begin, part->values.numel()));
  }
}

}  // namespace

// FNV-1a of the name and a round of splitmix64: the same numbers on every machine.
uint64_t seed_of_tensor(uint64_t seed, const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  uint64_t mixed = hash + (seed + 1) * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

void initialise_weights(ShardedModel& model, uint64_t seed, const Initialise& make, int num_threads,
                        const std::function<bool(const std::string&)>& is_chosen) {
  auto tensors = checkpoint::model_tensors(engine::EngineAccess::of(model));
  std::erase_if(tensors, [&](const checkpoint::ModelTensor& tensor) {
    return is_chosen && !is_chosen(tensor.names.front());
  });
  warn_of_buffers(engine::EngineAccess::of(model));
  engine::replace_values(engine::EngineAccess::of(model), "initialise_weights", [&] {
    // Every tensor has its own generator: who makes it, and when, changes nothing.
    std::vector<Room> rooms(static_cast<size_t>(std::max(num_threads, 1)));
    stored::do_items(static_cast<int64_t>(tensors.size()), num_threads, [&](int worker, int64_t i) {
      initialise(tensors[static_cast<size_t>(i)], seed, make, rooms[static_cast<size_t>(worker)]);
    });
  });
}

}  // namespace fullshard
