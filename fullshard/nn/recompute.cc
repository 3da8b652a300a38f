// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/recompute.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "fullshard/nn/replay_state.h"
#include "fullshard/nn/replayed_unit.h"
#include "fullshard/nn/saved_tensor_hooks.h"

namespace fullshard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

uint64_t next_call_id() {
  static std::atomic<uint64_t> last{0};  // identity only: nothing reads it back
  return ++last;
}

class PassScope {
 public:
  PassScope(nn::ForwardHooks* hooks, nn::RecomputePass pass, uint64_t id) : hooks_(hooks) {
    if (hooks_ != nullptr) hooks_->enter_recompute(pass, id);
  }
  ~PassScope() {
    if (hooks_ != nullptr) hooks_->leave_recompute();
  }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  nn::ForwardHooks* hooks_;
};

// How the replay's outputs are recognised.
struct OutputKind {
  at::ScalarType dtype;
  std::vector<int64_t> shape;

  bool operator==(const OutputKind& other) const = default;
  std::string text() const {
    return fmt::format("{} [{}]", c10::toString(dtype), fmt::join(shape, ", "));
  }
};

// A parameter does not own its accumulator, and the graph around the call does not reach it:
// without an owner nobody could tell in backward whether it was asked for.
struct Parameter {
  at::Tensor tensor;
  decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator;
};

// What the autograd node keeps besides its saved inputs.
struct Record : torch::CustomClassHolder {
  c10::intrusive_ptr<RecomputedCall> call;
  std::optional<nn::RandomState> random;  // absent when the body drew no numbers
  nn::AutocastState autocast;
  std::vector<OutputKind> outputs;
  std::vector<Parameter> parameters;  // that require gradients
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

std::vector<OutputKind> kinds_of(const std::vector<at::Tensor>& tensors) {
  std::vector<OutputKind> kinds;
  for (const at::Tensor& tensor : tensors) {
    kinds.push_back({tensor.scalar_type(), tensor.sizes().vec()});
  }
  return kinds;
}

std::vector<Parameter> parameters_of(const nn::UnitState& unit) {
  std::vector<Parameter> parameters;
  const auto* module = dynamic_cast<const torch::nn::Module*>(&unit);
  if (module == nullptr) return parameters;
  for (const at::Tensor& tensor : module->parameters()) {
    if (!tensor.requires_grad()) continue;
    parameters.push_back({tensor, torch::autograd::impl::grad_accumulator(tensor)});
  }
  return parameters;
}

std::vector<at::Tensor> record_body(Record& record, const std::vector<at::Tensor>& inputs) {
  const auto devices = nn::devices_of(inputs);
  const nn::RandomState before = nn::RandomState::now(devices);
  record.autocast = nn::AutocastState::now(devices);
  const std::vector<int64_t> versions = versions_of(inputs);
  std::vector<at::Tensor> outputs;
  {
    const PassScope pass(record.call->unit().hooks(), nn::RecomputePass::record, record.call->id());
    const nn::AutocastRecordScope autocast;
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
  record.outputs = kinds_of(outputs);
  record.parameters = parameters_of(record.call->unit());
  return outputs;
}

void check_same_outputs(const Record& record, const std::vector<at::Tensor>& outputs) {
  const auto kinds = kinds_of(outputs);
  const std::string unit = record.call->unit().class_name();
  check(kinds.size() == record.outputs.size(),
        "unit {}: its forward gave {} tensors, but {} when it was recomputed in backward; it must "
        "depend on its arguments and parameters only, or recompute must be off",
        unit, record.outputs.size(), kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) {
    check(kinds[i] == record.outputs[i],
          "unit {}: output {} of its forward was {}, but {} when it was recomputed in backward; it "
          "must depend on its arguments and parameters only, or recompute must be off",
          unit, i, record.outputs[i].text(), kinds[i].text());
  }
}

std::vector<at::Tensor> replay_body(const Record& record, const std::vector<at::Tensor>& inputs) {
  const at::AutoGradMode with_gradients(true);
  const nn::RandomStateScope random(record.random);
  const nn::AutocastReplayScope autocast(record.autocast);
  const nn::ReplayScope replay;
  const nn::ReplayedUnitScope replayed(record.call->unit());
  std::vector<at::Tensor> outputs = record.call->replay(inputs);
  check_same_outputs(record, outputs);
  return outputs;
}

using WantedNodes =
    std::remove_pointer_t<decltype(torch::autograd::get_current_graph_task_exec_info())>;

// Of autograd::grad and backward(inputs): the leaves of the replay whose gradients were asked for.
variable_list wanted_leaves(const Record& record, const variable_list& inputs,
                            const WantedNodes& wanted) {
  variable_list leaves;
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) leaves.push_back(input);
  }
  for (const Parameter& parameter : record.parameters) {
    const auto found = wanted.find(parameter.accumulator.get());
    if (found == wanted.end() || !found->second.should_execute()) continue;
    check(found->second.captures_ == nullptr,
          "unit {}: autograd::grad cannot give the gradient of a parameter of a recomputed unit; "
          "call backward, or turn recompute off",
          record.call->unit().class_name());
    leaves.push_back(parameter.tensor);
  }
  return leaves;
}

// Accumulates into the .grad of `leaves`; without them into that of inputs and parameters.
void run_backward(const std::vector<at::Tensor>& outputs, const variable_list& gradients,
                  const std::optional<variable_list>& leaves) {
  if (leaves && leaves->empty()) return;
  variable_list roots, root_gradients;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
    roots.push_back(outputs[i]);
    root_gradients.push_back(gradients[i]);
  }
  if (roots.empty()) return;
  torch::autograd::backward(roots, root_gradients, /*retain_graph=*/false, /*create_graph=*/false,
                            leaves.value_or(variable_list()));
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
    std::optional<variable_list> leaves;
    const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
    if (wanted != nullptr && !wanted->empty()) leaves = wanted_leaves(record, inputs, *wanted);
    // The inner backward belongs to the replay: units nested in it see their gradients there.
    const PassScope pass(record.call->unit().hooks(), nn::RecomputePass::replay, record.call->id());
    run_backward(replay_body(record, inputs), gradients, leaves);
    variable_list results{at::Tensor()};  // for the call
    for (at::Tensor& input : inputs) results.push_back(input.grad());
    results.emplace_back();  // for the anchor
    return results;
  }
};

}  // namespace

RecomputedCall::RecomputedCall(const nn::UnitState& unit, std::shared_ptr<const void> owner)
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
