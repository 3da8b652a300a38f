// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/micro_batch_pass.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "fullshard/engine/engine_access.h"
#include "fullshard/memory/available_memory.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/memory/recorded_event.h"
#include "fullshard/models/common/head.h"
#include "fullshard/models/common/unpadded.h"
#include "fullshard/nn/unit_state.h"

namespace fullshard::train {
namespace {

// The first passes set libraries up; those after them are timed. Beside a graph less is new.
constexpr int64_t kWarmUps = 2, kTimed = 2, kWarmUpsBeside = 1, kTimedBeside = 1;
// The host took at least this part of the time until the device was done.
constexpr double kHostBound = 0.6;
// Graphs share the memory of activations, but each is a few megabytes itself.
constexpr size_t kMostShapes = 32;

bool recomputes(const LanguageModel& model) {
  return std::ranges::any_of(model.modules(), [](const auto& module) {
    const auto* unit = dynamic_cast<const nn::UnitState*>(module.get());
    return unit != nullptr && unit->recompute();
  });
}

// Every tensor that a pass reads, given or not, layouts last.
std::vector<at::Tensor> tensors_read(const ModelInputs& inputs) {
  std::vector<at::Tensor> tensors;
  inputs.visit_tensors([&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  for (const auto& layout : {inputs.unpadded, inputs.unpadded_labels}) {
    const auto more = models::tensors_in(layout);
    if (more.empty()) tensors.emplace_back();
    tensors.insert(tensors.end(), more.begin(), more.end());
  }
  return tensors;
}

ModelInputs clone_of(ModelInputs inputs) {
  inputs.visit_tensors([](at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.clone();
  });
  inputs.unpadded = models::clone_of(inputs.unpadded);
  inputs.unpadded_labels = models::clone_of(inputs.unpadded_labels);
  return inputs;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

struct MicroBatchPass::Known {
  Shape shape;
  int64_t num_passes = 0;
  double host_s = 0, device_s = 0;
  std::optional<std::pair<memory::RecordedEvent, memory::RecordedEvent>>
      span;  // of the last timed pass
  double span_host_s = 0;
  bool has_failed = false;

  std::optional<memory::DeviceGraph> graph;
  ModelInputs inputs;       // that it reads
  at::Tensor weight, loss;  // that it reads, and writes
  std::vector<const void*> addresses;

  // Once the device has come past it.
  void count_span() {
    if (!span || !span->second.has_passed()) return;
    host_s += span_host_s;
    device_s += span->first.seconds_until(span->second);
    span.reset();
  }
};

MicroBatchPass::MicroBatchPass(LanguageModel& model, ShardedModel sharded, Stepper& stepper,
                               bool may_repeat)
    : model_(model),
      sharded_(std::move(sharded)),
      stepper_(stepper),
      device_(sharded_.mesh().world().device()) {
  why_not_ = may_repeat ? engine::EngineAccess::of(sharded_).why_not_repeatable() : "it is off";
}

MicroBatchPass::~MicroBatchPass() = default;

at::Tensor MicroBatchPass::run_in_parts(const ModelInputs& inputs, double weight,
                                        const std::function<void()>& after_forward) {
  const at::Tensor mean = model_.forward(inputs).loss;
  after_forward();
  const at::Tensor weighed = weight == 1.0 ? mean : mean * weight;
  stepper_.backward(weighed);
  return weighed.detach();  // the graph goes with the pass, and what it holds of a stream
}

at::Tensor MicroBatchPass::run(ModelInputs inputs, double weight) {
  const auto issue = [&] { return run_in_parts(inputs, weight, [] {}); };
  // Packed documents are cut on the host, and otherwise in every batch.
  if (!why_not_.empty() || inputs.documents) return issue();
  if (has_moved()) forget_graphs();
  Known& known = known_of(shape_of(inputs));
  if (known.has_failed) return issue();
  if (!known.graph && is_worth_capturing(known) && comes_after_its_neighbour(known)) {
    known.has_failed = !has_room_for_graph(known);
    if (!known.has_failed) capture(known, inputs);
  }
  if (!known.graph) return run_timed(known, issue);
  return repeat(known, inputs, weight);
}

// The model slept, or somebody gave a parameter other memory.
bool MicroBatchPass::has_moved() const {
  const Known* captured = any_captured();
  return captured != nullptr &&
         captured->addresses != engine::EngineAccess::of(sharded_).addresses();
}

const MicroBatchPass::Known* MicroBatchPass::any_captured() const {
  const auto found =
      std::ranges::find_if(known_, [](const auto& known) { return known->graph.has_value(); });
  return found == known_.end() ? nullptr : found->get();
}

MicroBatchPass::Shape MicroBatchPass::shape_of(const ModelInputs& inputs) const {
  Shape shape;
  for (const auto& tensor : tensors_read(inputs)) {
    std::vector<int64_t> sizes;
    if (tensor.defined()) {
      sizes = tensor.sizes().vec();
      sizes.push_back(static_cast<int64_t>(tensor.scalar_type()));
    }
    shape.sizes.push_back(std::move(sizes));
  }
  for (const auto& layout : {inputs.unpadded, inputs.unpadded_labels}) {
    if (layout != nullptr) shape.longest_documents.push_back(layout->documents->longest);
  }
  shape.labels_are_next = inputs.labels_are_next;
  shape.label_smoothing = inputs.label_smoothing;
  // As many as the head is given.
  const auto& asked = inputs.unpadded_labels ? inputs.unpadded_labels->places : inputs.labels;
  if (models::takes_labelled_rows(asked, inputs.num_labels)) {
    shape.num_labels = inputs.num_labels;
  }
  shape.loss_factor = stepper_.loss_factor();
  shape.adds = engine::EngineAccess::of(sharded_).has_gradients();
  shape.trains = model_.is_training();
  return shape;
}

// The one that has not come for longest is forgotten.
MicroBatchPass::Known& MicroBatchPass::known_of(const Shape& shape) {
  const auto found =
      std::ranges::find_if(known_, [&](const auto& known) { return known->shape == shape; });
  if (found != known_.end()) {
    std::rotate(found, found + 1, known_.end());
    return *known_.back();
  }
  if (known_.size() >= kMostShapes) known_.erase(known_.begin());
  known_.push_back(std::make_unique<Known>());
  known_.back()->shape = shape;
  return *known_.back();
}

at::Tensor MicroBatchPass::run_timed(Known& known, const Issue& issue) {
  known.count_span();
  ++known.num_passes;
  if (known.num_passes <= (any_captured() ? kWarmUpsBeside : kWarmUps) || known.span) {
    return issue();
  }
  constexpr auto kWithTimes = memory::RecordedEvent::Timing::on;
  const int64_t random_before = random_offset();
  const auto device_begin = memory::RecordedEvent::of_caller(device_, kWithTimes);
  const auto begin = std::chrono::steady_clock::now();
  auto loss = issue();
  known.span_host_s = seconds_since(begin);
  known.span.emplace(device_begin, memory::RecordedEvent::of_caller(device_, kWithTimes));
  // A graph draws what its pass would have drawn without it. Computing a layer again puts the
  // generator back, which a graph cannot.
  if (random_offset() != random_before && recomputes(model_)) {
    give_up("layers that draw random numbers are computed again");
  }
  return loss;
}

int64_t MicroBatchPass::random_offset() const {
  return static_cast<int64_t>(at::globalContext().defaultGenerator(device_).get_offset());
}

bool MicroBatchPass::is_worth_capturing(Known& known) const {
  known.count_span();
  const int64_t num_seen = any_captured() ? kWarmUpsBeside + kTimedBeside : kWarmUps + kTimed;
  return known.num_passes >= num_seen && !known.span && known.device_s > 0 &&
         known.host_s >= kHostBound * known.device_s;
}

// A pass that adds to gradients is captured after the one that does not: that one is captured while
// nothing can be lost, it makes gradients keep their places, and its memory is enough for both.
bool MicroBatchPass::comes_after_its_neighbour(const Known& known) const {
  if (!known.shape.adds) return true;
  Shape first = known.shape;
  first.adds = false;
  return std::ranges::any_of(known_,
                             [&](const auto& seen) { return seen->graph && seen->shape == first; });
}

// A graph has activations of its own, and while it is captured the allocator gives nothing back to
// the driver. Batches of various lengths go on beside it. No run ends for want of memory that it
// would have had without graphs.
bool MicroBatchPass::has_room_for_graph(const Known& known) const {
  const auto held = memory::device_memory(device_);
  const bool has_neighbour = any_captured() != nullptr;
  if (!has_neighbour) memory::release_unused(device_);
  const bool is_of_various_lengths = !known.shape.longest_documents.empty();
  const int64_t activations = held.peak_bytes - held.allocated_bytes;
  return memory::available_bytes(device_) >=
         (is_of_various_lengths ? held.peak_bytes : activations);
}

void MicroBatchPass::capture(Known& known, const ModelInputs& inputs) {
  auto& engine = engine::EngineAccess::of(sharded_);
  known.inputs = clone_of(inputs);
  known.weight = at::empty({}, at::TensorOptions().dtype(at::kFloat).device(device_));
  const Known* neighbour = any_captured();
  known.graph.emplace(device_);
  const ShardCounters counters = engine.counters();
  const auto gradients = engine.gradient_marks();
  try {
    known.graph->capture(
        [&] {
          const at::Tensor mean = model_.forward(known.inputs).loss;
          const at::Tensor weighed = mean * known.weight;
          known.loss = weighed.detach();
          const double factor = known.shape.loss_factor;
          (factor == 1 ? weighed : weighed.mul(factor)).backward();
        },
        neighbour == nullptr ? nullptr : &*neighbour->graph);
  } catch (const std::exception& error) {
    known.graph.reset();
    known.has_failed = true;
    engine.forget_unrun_pass(gradients);
    engine.counters() = counters;
    spdlog::debug("no CUDA graph of this batch's shape: {}", error.what());
    return;
  }
  engine.counters() = counters;  // nothing has run yet
  engine.note_captured_pass();
  known.addresses = engine.addresses();
  // What passes outside graphs used is of no use to them.
  const auto is_captured = [](const auto& seen) { return seen->graph.has_value(); };
  if (std::ranges::all_of(known_, is_captured)) memory::release_unused(device_);
}

at::Tensor MicroBatchPass::repeat(Known& known, const ModelInputs& inputs, double weight) {
  const auto from = tensors_read(inputs), to = tensors_read(known.inputs);
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].defined()) to[i].copy_(from[i], /*non_blocking=*/true);
  }
  known.weight.fill_(weight);
  known.graph->replay();
  engine::EngineAccess::of(sharded_).note_repeated_pass();
  ++num_repeated_;
  auto loss = known.loss.clone();  // the next one writes there
  stepper_.note_repeated_backward(loss);
  return loss;
}

void MicroBatchPass::give_up(const std::string& why) {
  why_not_ = why;
  forget_graphs();
}

void MicroBatchPass::forget_graphs() {
  known_.clear();
  engine::EngineAccess::of(sharded_).forget_captured_passes();
}

}  // namespace fullshard::train
