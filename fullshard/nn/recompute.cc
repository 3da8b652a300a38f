#include "fullshard/nn/recompute.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

namespace fullshard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

uint64_t next_call_id() {
  static std::atomic<uint64_t> last{0};  // identity only: nothing reads it back
  return ++last;
}

// The default generators that a body may draw from: the CPU's and those of the inputs' devices.
class RandomState {
 public:
  static RandomState now(const std::vector<at::Tensor>& tensors) {
    RandomState state;
    state.add(at::Device(at::kCPU));
    for (const at::Tensor& tensor : tensors) {
      if (tensor.is_cuda()) state.add(tensor.device());
    }
    return state;
  }

  RandomState again() const {
    RandomState state;
    for (const Entry& entry : entries_) state.add(entry.device);
    return state;
  }

  void restore() const {
    for (const Entry& entry : entries_) {
      at::Generator generator = at::globalContext().defaultGenerator(entry.device);
      const std::lock_guard lock(generator.mutex());
      generator.set_state(entry.state);
    }
  }

  bool operator==(const RandomState& other) const {
    return std::ranges::equal(entries_, other.entries_, [](const Entry& a, const Entry& b) {
      return a.device == b.device && at::equal(a.state, b.state);
    });
  }

 private:
  struct Entry {
    at::Device device;
    at::Tensor state;
  };

  void add(at::Device device) {
    for (const Entry& entry : entries_) {
      if (entry.device == device) return;
    }
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    entries_.push_back({device, generator.get_state()});
  }

  std::vector<Entry> entries_;
};

// Sets the state for its scope, then puts back what was there before.
class RandomStateScope {
 public:
  explicit RandomStateScope(const std::optional<RandomState>& state) {
    if (!state) return;
    before_ = state->again();
    state->restore();
  }
  ~RandomStateScope() {
    if (before_) before_->restore();
  }
  RandomStateScope(const RandomStateScope&) = delete;
  RandomStateScope& operator=(const RandomStateScope&) = delete;

 private:
  std::optional<RandomState> before_;
};

class PassScope {
 public:
  PassScope(ForwardHooks* hooks, RecomputePass pass, uint64_t id) : hooks_(hooks) {
    if (hooks_ != nullptr) hooks_->enter_recompute(pass, id);
  }
  ~PassScope() {
    if (hooks_ != nullptr) hooks_->leave_recompute();
  }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  ForwardHooks* hooks_;
};

// What the autograd node keeps besides its saved inputs.
struct Record : torch::CustomClassHolder {
  c10::intrusive_ptr<RecomputedCall> call;
  std::optional<RandomState> random;  // absent when the body drew no numbers
  size_t num_outputs = 0;
};

constexpr const char* kRecord = "record";

std::vector<int64_t> versions_of(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> versions;
  for (const at::Tensor& tensor : tensors) {
    versions.push_back(tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version()));
  }
  return versions;
}

bool is_any_of(const at::Tensor& tensor, const std::vector<at::Tensor>& others) {
  return std::ranges::any_of(others,
                             [&](const at::Tensor& other) { return tensor.is_same(other); });
}

std::vector<at::Tensor> record_body(Record& record, const std::vector<at::Tensor>& inputs) {
  const RandomState before = RandomState::now(inputs);
  const std::vector<int64_t> versions = versions_of(inputs);
  std::vector<at::Tensor> outputs;
  {
    const PassScope pass(record.call->unit().hooks(), RecomputePass::record, record.call->id());
    outputs = record.call->record(inputs);
  }
  check(versions == versions_of(inputs),
        "unit {}: its forward writes one of its inputs in place, so backward could not compute it "
        "again; clone the input first, or turn recompute off",
        record.call->unit().class_name());
  if (before != before.again()) record.random = before;
  // An output may be a parameter or a buffer that must not become part of the graph itself.
  for (at::Tensor& output : outputs) {
    if (!is_any_of(output, inputs)) output = output.detach();
  }
  record.num_outputs = outputs.size();
  return outputs;
}

std::vector<at::Tensor> replay_body(const Record& record, const std::vector<at::Tensor>& inputs) {
  const at::AutoGradMode with_gradients(true);
  const RandomStateScope random(record.random);
  std::vector<at::Tensor> outputs = record.call->replay(inputs);
  check(outputs.size() == record.num_outputs,
        "unit {}: its forward gave {} tensors, but {} when it was recomputed in backward; it must "
        "depend on its arguments and parameters only, or recompute must be off",
        record.call->unit().class_name(), record.num_outputs, outputs.size());
  return outputs;
}

// Accumulates into parameters and into the .grad of `inputs`.
void run_backward(const std::vector<at::Tensor>& outputs, const variable_list& gradients) {
  variable_list roots, root_gradients;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
    roots.push_back(outputs[i]);
    root_gradients.push_back(gradients[i]);
  }
  if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
}

struct Recompute : torch::autograd::Function<Recompute> {
  static variable_list forward(AutogradContext* context, RecomputedCall* call,
                               at::TensorList inputs, const at::Tensor& /*anchor*/) {
    auto record = c10::make_intrusive<Record>();
    record->call = c10::intrusive_ptr<RecomputedCall>::reclaim_copy(call);
    variable_list outputs = record_body(*record, inputs.vec());
    variable_list integers;
    for (const at::Tensor& output : outputs) {
      if (!output.is_floating_point() && !output.is_complex()) integers.push_back(output);
    }
    context->mark_non_differentiable(integers);
    context->set_materialize_grads(false);
    context->save_for_backward(inputs.vec());
    context->saved_data[kRecord] = c10::IValue::make_capsule(std::move(record));
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data[kRecord].toCapsule();
    const auto& record = static_cast<const Record&>(*capsule);
    check(!at::GradMode::is_enabled(),
          "unit {}: second derivatives (create_graph) do not pass through a recomputed unit; turn "
          "recompute off",
          record.call->unit().class_name());
    variable_list inputs = context->get_saved_variables();
    for (at::Tensor& input : inputs) {
      input = input.detach().set_requires_grad(input.requires_grad());
    }
    // The inner backward belongs to the replay: units nested in it see their gradients there.
    const PassScope pass(record.call->unit().hooks(), RecomputePass::replay, record.call->id());
    run_backward(replay_body(record, inputs), gradients);
    variable_list results{at::Tensor()};  // for the call
    for (at::Tensor& input : inputs) results.push_back(input.grad());
    results.emplace_back();  // for the anchor
    return results;
  }
};

}  // namespace

RecomputedCall::RecomputedCall(const UnitState& unit, std::shared_ptr<const void> owner)
    : unit_(unit), owner_(std::move(owner)), id_(next_call_id()) {}

std::vector<at::Tensor> run_recomputed(const c10::intrusive_ptr<RecomputedCall>& call,
                                       const std::vector<at::Tensor>& inputs) {
  // A Function without an input that requires gradients makes no node, yet parameters may need one.
  const at::Tensor anchor = at::zeros({}).set_requires_grad(true);
  return Recompute::apply(call.get(), at::TensorList(inputs), anchor);
}

bool any_requires_grad(const std::vector<at::Tensor>& tensors) {
  return std::ranges::any_of(tensors, [](const at::Tensor& t) { return t.requires_grad(); });
}

}  // namespace fullshard
