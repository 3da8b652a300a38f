#include "fullshard/checkpoint/foreign_checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>

#include "fullshard/checkpoint/any_checkpoint.h"
#include "fullshard/checkpoint/name_match.h"
#include "fullshard/checkpoint/transposed_read.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/shard/agreement.h"

namespace fullshard {
namespace {

constexpr const char* kWhat = "load_foreign_checkpoint";

const TensorSource* find_state(const AnyCheckpoint& checkpoint, const std::string& name) {
  for (const auto& state : checkpoint.states) {
    if (state.name == name) return state.tensors.get();
  }
  return nullptr;
}

// Parameters that the optimizer has states of.
std::vector<ModelTensor> trained_tensors(const Engine& engine) {
  auto tensors = model_tensors(engine);
  std::erase_if(tensors, [](const ModelTensor& tensor) {
    return tensor.group == nullptr || !tensor.group->trainable();
  });
  return tensors;
}

class StateLoader {
 public:
  StateLoader(const AnyCheckpoint& checkpoint, const Engine& engine, const Optimizer& optimizer,
              LoadOptions options)
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
    if (checkpoint_.states.empty()) return "it has no optimizer states that can be read by name";
    for (const auto& name : optimizer_.state_names()) {
      const auto* source = find_state(checkpoint_, name);
      if (source == nullptr) {
        std::vector<std::string> there;
        for (const auto& state : checkpoint_.states) there.push_back(state.name);
        return fmt::format("its optimizer has the states [{}], and {} needs {}",
                           fmt::join(there, ", "), optimizer_.name(), name);
      }
      try {
        matches_.push_back(match_names(*source, tensors_, options_));
      } catch (const Error& error) {
        return fmt::format("the optimizer's {} do not fit: {}", name, error.what());
      }
    }
    return "";
  }

  void read() const {
    const at::NoGradGuard no_grad;
    for (size_t k = 0; k < matches_.size(); ++k) {
      const auto& source = *find_state(checkpoint_, optimizer_.state_names()[k]);
      for (const auto& match : matches_[k]) read_part(source, match, static_cast<int>(k));
    }
  }

 private:
  void read_part(const TensorSource& source, const TensorMatch& match, int k) const {
    const auto& tensor = *match.tensor;
    for (const auto& piece : tensor.group->pieces()) {
      if (piece.slot != tensor.slot || piece.numel() == 0) continue;
      const auto& state = optimizer_.state(group_index_.at(tensor.group), k);
      const auto target = state.narrow(0, piece.shard_offset, piece.numel());
      const auto values =
          target.is_cpu() ? target : at::empty({piece.numel()}, target.scalar_type());
      if (match.transposed) {
        read_transposed(source, match.name, tensor.shape[0], tensor.shape[1], piece.begin, values);
      } else {
        source.read(match.name, piece.begin, values);
      }
      if (!target.is_cpu()) target.copy_(values);
    }
  }

  const AnyCheckpoint& checkpoint_;
  const Optimizer& optimizer_;
  LoadOptions options_;
  std::vector<ModelTensor> tensors_;
  std::map<const ParamGroup*, int> group_index_;
  std::vector<std::vector<TensorMatch>> matches_;  // of each state
};

Progress progress_in(const AnyCheckpoint& checkpoint, bool has_states) {
  Progress progress;
  const int64_t of_optimizer = has_states ? checkpoint.optimizer_steps.value_or(0) : 0;
  progress.step = checkpoint.num_steps.value_or(of_optimizer);
  progress.num_skipped = checkpoint.num_skipped;
  progress.scheduler_steps = progress.step - progress.num_skipped;
  progress.data = DataPosition{.step = progress.step};
  return progress;
}

}  // namespace

ForeignCheckpoint load_foreign_checkpoint(const std::string& folder, ShardedModel& model,
                                          Optimizer& optimizer, const LoadOptions& options) {
  auto& engine = model.engine();
  const auto& everyone = engine.mesh().everyone();
  std::optional<AnyCheckpoint> checkpoint;
  std::optional<StateLoader> states;
  std::string reason;
  throw_alike(everyone, error_of([&] {
                checkpoint = open_any(folder);
                check_input(checkpoint->weights != nullptr,
                            "{}: holds the states of an optimizer and no weights", folder);
                states.emplace(*checkpoint, engine, optimizer, options);
                reason = states->find();
              }),
              kWhat);
  load_weights(*checkpoint->weights, model, options);
  ForeignCheckpoint loaded{.kind = checkpoint->kind, .progress = {}, .has_states = reason.empty()};
  if (loaded.has_states) {
    throw_alike(everyone, error_of([&] { states->read(); }), kWhat);
    optimizer.restore_num_steps(
        checkpoint->optimizer_steps.value_or(checkpoint->num_steps.value_or(0)));
  } else {
    loaded.notes.push_back(fmt::format("the optimizer starts anew: {}", reason));
  }
  loaded.progress = progress_in(*checkpoint, loaded.has_states);
  if (loaded.progress.step == 0) {
    loaded.notes.emplace_back("it does not say how many steps were done: counting starts at 0");
  }
  return loaded;
}

}  // namespace fullshard
