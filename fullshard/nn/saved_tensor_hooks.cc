// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/saved_tensor_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"

namespace fullshard::nn {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;
using torch::autograd::variable_list;

// What libtorch asks about has no argument that could carry it.
struct ThreadState {
  SavedTensorPacker* packer = nullptr;
  int replays = 0;
};
thread_local ThreadState thread_state;

// One saved tensor in the graph. With hooks of its own libtorch no longer looks at versions, so
// that is done here.
class Hooks final : public SavedVariableHooks {
 public:
  explicit Hooks(SavedTensorPacker& packer) : packer_(packer) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    stamp_.emplace(tensor);
    dtype_ = tensor.scalar_type();
    shape_ = tensor.sizes().vec();
    packed_ = packer_.pack(tensor);
  }

  at::Tensor call_unpack_hook() override {
    TORCH_CHECK(stamp_->is_current(),
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: [",
                dtype_, " ", at::IntArrayRef(shape_), "] is at version ", stamp_->current_version(),
                "; expected version ", stamp_->version(), " instead.");
    return packed_->unpack();
  }

 private:
  SavedTensorPacker& packer_;  // used by the pack that follows at once, never later
  std::optional<VersionStamp> stamp_;
  at::ScalarType dtype_ = at::kFloat;
  std::vector<int64_t> shape_;
  std::unique_ptr<PackedTensor> packed_;
};

class HookingEngine final : public Engine {
 public:
  // The base engine owns the worker threads of devices, which are started once per process.
  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                        bool create_graph, bool accumulate_grad,
                        const edge_list& outputs) override {
    return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad,
                                     outputs);
  }

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (thread_state.packer == nullptr) return nullptr;
    return std::make_unique<Hooks>(*thread_state.packer);
  }
};

Engine& hooking_engine() {
  static auto* engine = new HookingEngine;  // graphs may run until the very end of the process
  return *engine;
}

bool install_engine() {
  check(&Engine::get_default_engine() == &Engine::get_base_engine(),
        "saved tensors: this process already has an autograd engine of its own (Python's?), which "
        "cannot be extended; turn the offload of activations off");
  torch::autograd::set_default_engine_stub(hooking_engine);
  return true;
}

}  // namespace

SavedTensorPacker::SavedTensorPacker() {
  [[maybe_unused]] static const bool installed = install_engine();
}

VersionStamp::VersionStamp(const at::Tensor& tensor)
    : counter_(torch::autograd::impl::version_counter(tensor)),
      version_(counter_.current_version()) {}

bool VersionStamp::operator==(const VersionStamp& other) const {
  // A VariableVersion is a pointer to its counter and does not show it.
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  return version_ == other.version_ &&
         std::memcmp(static_cast<const void*>(&counter_), static_cast<const void*>(&other.counter_),
                     sizeof(void*)) == 0;
}

SavedTensorScope::SavedTensorScope(SavedTensorPacker* packer) : before_(thread_state.packer) {
  if (packer != nullptr) thread_state.packer = packer;
}

SavedTensorScope::~SavedTensorScope() { thread_state.packer = before_; }

SavedTensorScope SavedTensorScope::of_unit(SavedTensorPacker* packer) {
  return SavedTensorScope(thread_state.replays > 0 ? nullptr : packer);
}

ReplayScope::ReplayScope() { ++thread_state.replays; }
ReplayScope::~ReplayScope() { --thread_state.replays; }

}  // namespace fullshard::nn
