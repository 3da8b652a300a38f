// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/foreign_checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "fullshard/checkpoint/name_match.h"
#include "fullshard/checkpoint/numbered_parameters.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/weights/source_sums.h"
#include "fullshard/stored/any_checkpoint.h"
#include "fullshard/stored/transposed_read.h"

namespace fullshard {
namespace {

constexpr const char* kForeignLoad = "load_foreign_checkpoint";

// Parameters that the optimizer has states of.
std::vector<checkpoint::ModelTensor> trained_tensors(const engine::Engine& engine) {
  auto tensors = checkpoint::model_tensors(engine);
  std::erase_if(tensors, [](const checkpoint::ModelTensor& tensor) {
    return tensor.group == nullptr || !tensor.group->trainable();
  });
  return tensors;
}

// As files hold them, in the order of the module's tree; empty: that is not known.
std::vector<checkpoint::OrderedParameter> parameters_in_order(
    const std::vector<checkpoint::ModelTensor>& tensors, const LoadOptions& options) {
  std::map<std::string, const checkpoint::ModelTensor*> by_name;
  for (const auto& tensor : tensors) {
    for (const auto& name : tensor.names) by_name.emplace(name, &tensor);
  }
  std::set<const checkpoint::ModelTensor*> done;  // a tied one counts under its first name
  std::vector<checkpoint::OrderedParameter> parameters;
  for (const auto& name : options.order) {
    const auto found = by_name.find(name);
    if (found == by_name.end() || !done.insert(found->second).second) continue;
    const auto in_file = checkpoint::name_in_file(*found->second, name, options.names);
    auto shape = found->second->shape;
    if (in_file.transposed) std::ranges::reverse(shape);
    parameters.push_back({in_file.name, std::move(shape)});
  }
  return parameters;
}

class StateLoader {
 public:
  StateLoader(const stored::AnyCheckpoint& checkpoint, const engine::Engine& engine,
              const Optimizer& optimizer, LoadOptions options)
      : checkpoint_(checkpoint),
        optimizer_(optimizer),
        options_(std::move(options)),
        tensors_(trained_tensors(engine)) {
    // What is not trained here may have been there.
    options_.is_ignored = [](const std::string&) { return true; };
    for (const auto* group : engine.trainable_groups()) {
      group_index_.emplace(group, static_cast<int>(group_index_.size()));
    }
  }

  // Why the states cannot be taken over; empty: they can.
  std::string find() {
    if (checkpoint_.numbered != nullptr) {
      if (auto problem = name_numbered(); !problem.empty()) return problem;
    } else {
      for (const auto& state : checkpoint_.states) sources_[state.name] = state.tensors.get();
    }
    if (sources_.empty()) return "it has no optimizer states";
    if (corrects_bias() && !checkpoint_.optimizer_steps && !checkpoint_.num_steps) {
      return "it does not say how many steps its states come from";
    }
    for (const auto& name : optimizer_.state_names()) {
      const auto source = sources_.find(name);
      if (source == sources_.end()) {
        return fmt::format(
            "its optimizer has the states [{}], and {} needs {}",
            base::printable(fmt::format("{}", fmt::join(std::views::keys(sources_), ", "))),
            optimizer_.name(), name);
      }
      try {
        matches_.push_back(checkpoint::match_names(*source->second, tensors_, options_));
      } catch (const Error& error) {
        return fmt::format("the optimizer's {} do not fit: {}", name, error.what());
      }
    }
    return "";
  }

  void read(const World& world) const {
    const at::NoGradGuard no_grad;
    for (size_t k = 0; k < matches_.size(); ++k) {
      const auto& source = *sources_.at(optimizer_.state_names()[k]);
      std::vector<std::string> names;
      for (const auto& match : matches_[k]) {
        read_part(source, match, static_cast<int>(k));
        names.push_back(match.name);
      }
      formats::check_sums_of(source, names, world.rank(), world.size());
    }
  }

 private:
  // By the number of steps: averages of many, taken for those of one, would be far too large.
  bool corrects_bias() const {
    const auto& names = optimizer_.state_names();
    return std::ranges::find(names, "exp_avg") != names.end();
  }

  std::string name_numbered() {
    const formats::OptimizerFile& file = *checkpoint_.numbered;
    if (options_.order.empty()) return "it numbers its parameters, whose order is not known here";
    const auto named = checkpoint::name_numbers(file, parameters_in_order(tensors_, options_));
    if (!named.problem.empty()) return named.problem;
    for (const auto& state : file.states()) {
      named_.push_back(file.state(state, named.names));
      sources_[state] = named_.back().get();
    }
    return "";
  }

  void read_part(const TensorSource& source, const checkpoint::TensorMatch& match, int k) const {
    const auto& tensor = *match.tensor;
    for (const auto& piece : tensor.group->pieces()) {
      if (piece.slot != tensor.slot || piece.numel() == 0) continue;
      const auto& state = optimizer_.state(group_index_.at(tensor.group), k);
      const auto target = state.narrow(0, piece.shard_offset, piece.numel());
      const auto values =
          target.is_cpu() ? target : at::empty({piece.numel()}, target.scalar_type());
      if (match.transposed) {
        stored::read_transposed(source, match.name, tensor.shape[0], tensor.shape[1], piece.begin,
                                values);
      } else {
        source.read(match.name, piece.begin, values);
      }
      if (!target.is_cpu()) target.copy_(values);
    }
  }

  const stored::AnyCheckpoint& checkpoint_;
  const Optimizer& optimizer_;
  LoadOptions options_;
  std::vector<checkpoint::ModelTensor> tensors_;
  std::map<const engine::ParamGroup*, int> group_index_;
  std::map<std::string, const TensorSource*> sources_;         // by the state's name
  std::vector<std::unique_ptr<TensorSource>> named_;           // those of numbered parameters
  std::vector<std::vector<checkpoint::TensorMatch>> matches_;  // of each state
};

Progress progress_in(const stored::AnyCheckpoint& checkpoint, bool has_states) {
  Progress progress;
  const int64_t of_optimizer = has_states ? checkpoint.optimizer_steps.value_or(0) : 0;
  progress.step = checkpoint.num_steps.value_or(of_optimizer);
  progress.num_skipped = checkpoint.num_skipped;
  progress.scheduler_steps =
      checkpoint.scheduler_steps.value_or(progress.step - progress.num_skipped);
  if (const auto& saved = checkpoint.loss_scale; saved && saved->is_dynamic) {
    progress.loss_scale =
        LossScaler::State{saved->scale, saved->iteration, saved->last_overflow, saved->hysteresis};
  }
  progress.data = DataPosition{.step = progress.step};
  return progress;
}

// What of the loss scale has no place in ours.
void add_scale_notes(const stored::AnyCheckpoint& checkpoint, std::vector<std::string>& notes) {
  if (!checkpoint.loss_scale) return;
  const formats::SavedLossScale& saved = *checkpoint.loss_scale;
  if (!saved.is_dynamic && saved.scale != 1) {
    notes.push_back(fmt::format("its loss scale was fixed at {}; that of this run is as configured",
                                saved.scale));
  }
  if (saved.is_dynamic && saved.factor != 2) {
    notes.push_back(
        fmt::format("its loss scale {} is taken over; it changed by a factor of {} and "
                    "changes by 2 from now on",
                    saved.scale, saved.factor));
  }
}

}  // namespace

ForeignCheckpoint load_foreign_checkpoint(const stored::FoundCheckpoint& found, ShardedModel& model,
                                          Optimizer& optimizer, const LoadOptions& options) {
  auto& engine = engine::EngineAccess::of(model);
  const auto everyone = checkpoint::patient_ranks(engine.mesh());
  std::optional<stored::AnyCheckpoint> checkpoint;
  std::optional<StateLoader> states;
  std::string reason;
  engine::throw_alike(everyone, engine::error_of([&] {
                        checkpoint = stored::open_any(found);
                        formats::check_input(checkpoint->weights != nullptr,
                                             "{}: holds the states of an optimizer and no weights",
                                             found.path());
                        states.emplace(*checkpoint, engine, optimizer, options);
                        reason = states->find();
                      }),
                      kForeignLoad);
  load_weights(*checkpoint->weights, model, options);
  ForeignCheckpoint loaded{.kind = checkpoint->kind, .progress = {}, .has_states = reason.empty()};
  if (loaded.has_states) {
    engine::throw_alike(everyone, engine::error_of([&] { states->read(engine.mesh().world()); }),
                        kForeignLoad);
    optimizer.restore_num_steps(
        checkpoint->optimizer_steps.value_or(checkpoint->num_steps.value_or(0)));
  } else {
    loaded.notes.push_back(fmt::format("the optimizer starts anew: {}", reason));
  }
  loaded.progress = progress_in(*checkpoint, loaded.has_states);
  add_scale_notes(*checkpoint, loaded.notes);
  if (loaded.progress.step == 0) {
    loaded.notes.emplace_back("it does not say how many steps were done: counting starts at 0");
  }
  return loaded;
}

ForeignCheckpoint load_foreign_checkpoint(const std::string& folder, ShardedModel& model,
                                          Optimizer& optimizer, const LoadOptions& options) {
  std::optional<stored::FoundCheckpoint> found;
  engine::throw_alike(checkpoint::patient_ranks(model.mesh()),
                      engine::error_of([&] { found = stored::FoundCheckpoint::find(folder); }),
                      kForeignLoad);
  return load_foreign_checkpoint(*found, model, optimizer, options);
}

}  // namespace fullshard
