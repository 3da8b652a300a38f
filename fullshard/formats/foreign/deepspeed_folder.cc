// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/foreign/deepspeed_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/pickle/pickle_fields.h"
#include "fullshard/formats/torch/optimizer_file.h"

namespace fullshard::formats {
namespace {

// Elements [begin, begin + numel) of tensors that lie one after the other.
std::vector<FileInterval> slice(const std::vector<FileInterval>& flat, int64_t begin,
                                int64_t numel) {
  std::vector<FileInterval> found;
  int64_t at = 0;
  for (const auto& interval : flat) {
    const int64_t from = std::max(begin, at);
    const int64_t to = std::min(begin + numel, at + interval.numel);
    if (from < to) {
      found.push_back({interval.file, interval.tensor, interval.first + from - at, to - from});
    }
    at += interval.numel;
  }
  return found;
}

int64_t total_numel(const std::vector<FileInterval>& flat) {
  int64_t numel = 0;
  for (const auto& interval : flat) numel += interval.numel;
  return numel;
}

int64_t divide_up(int64_t value, int64_t by) { return value / by + (value % by != 0 ? 1 : 0); }

// A tensor without elements has no part in a flat group; it still has a name.
std::vector<FileInterval> or_empty(std::vector<FileInterval> found,
                                   const std::vector<FileInterval>& flat) {
  if (found.empty() && !flat.empty()) {
    found.push_back({flat.front().file, flat.front().tensor, 0, 0});
  }
  return found;
}

}  // namespace

DeepSpeedFolder::DeepSpeedFolder(const std::string& path, const std::string& tag)
    : files_(open_deepspeed_files(path, tag)) {
  read_facts();
  read_groups();
  read_paddings();
  read_tied();
  find_states();
  if (stage_ <= 2) check_slices();
}

std::string DeepSpeedFolder::where_optimizer(size_t rank) const {
  return files_.optimizers[rank]->path() + ": optimizer_state_dict";
}

const PickleValue& DeepSpeedFolder::optimizer(size_t rank) const {
  const TorchFile& file = *files_.optimizers[rank];
  return field_of(file.root(), "optimizer_state_dict", file.path());
}

void DeepSpeedFolder::read_facts() {
  const TorchFile& model = *files_.models[0];
  if (const auto* steps = model.root().find("global_steps")) {
    num_steps_ = number_of(*steps, model.path() + ": global_steps");
  }
  if (const auto* skipped = model.root().find("skipped_steps")) {
    num_skipped_ = number_of(*skipped, model.path() + ": skipped_steps");
  }
  check_input(num_skipped_ >= 0 && num_skipped_ <= num_steps_,
              "{}: global_steps {} and skipped_steps {} contradict each other", model.path(),
              num_steps_, num_skipped_);
  const auto* version = model.root().find("ds_version");
  if (version != nullptr && version->kind == PickleKind::text) version_ = version->text;

  for (size_t rank = 0; rank < files_.optimizers.size(); ++rank) {
    const std::string where = where_optimizer(rank);
    const PickleValue& state = optimizer(rank);
    const int64_t stage = number_of(field_of(state, "zero_stage", where), where + ": zero_stage");
    check_input(stage >= 1 && stage <= 3, "{}: zero_stage is {}, expected 1, 2 or 3", where, stage);
    if (rank == 0) stage_ = static_cast<int>(stage);
    check_input(stage == stage_, "{}: zero_stage is {}, rank 0 has {}", where, stage, stage_);
    const PickleValue& count = field_of(state, "partition_count", where);
    int64_t ranks = 0;
    if (const auto number = number_in(count)) ranks = *number;
    for (const auto* item : count.items) ranks = std::max(ranks, number_in(*item).value_or(0));
    check_input(ranks == num_ranks(),
                "{}: partition_count says {} ranks, there are {} *_optim_states.pt; some were not "
                "copied, or belong to another checkpoint",
                where, ranks, num_ranks());
  }
  const size_t expected = stage_ == 3 ? files_.optimizers.size() : 1;
  check_input(files_.models.size() == expected,
              "{}: has {} *_model_states.pt, stage {} on {} ranks needs {}", files_.folder,
              files_.models.size(), stage_, num_ranks(), expected);
}

void DeepSpeedFolder::read_groups() {
  const TorchFile& model = *files_.models[0];
  const std::string where = model.path() + ": param_shapes";
  std::set<std::string> names;
  for (const auto* shapes : items_of(field_of(model.root(), "param_shapes", model.path()), where)) {
    check_input(shapes->kind == PickleKind::dict, "{}: holds {}, expected dictionaries", where,
                shapes->describe());
    Group group;
    for (const auto& [key, value] : shapes->pairs) {
      const std::string name = text_of(*key, where);
      const std::string what = fmt::format("{}: '{}'", where, name);
      Parameter parameter{name, shape_of(*value, what)};
      const auto numel = checked_numel(parameter.shape);
      check_input(numel.has_value(), "{}: its shape {} is impossible", what,
                  format_shape(parameter.shape));
      check_input(names.insert(name).second, "{}: occurs twice", what);
      parameter.numel = *numel;
      group.push_back(std::move(parameter));
    }
    groups_.push_back(std::move(group));
  }
}

void DeepSpeedFolder::read_paddings() {
  const PickleValue* all = optimizer(0).find("param_alignment_paddings");
  if (stage_ == 3 || all == nullptr || all->kind == PickleKind::none) return;
  const std::string where = where_optimizer(0) + ": param_alignment_paddings";
  const auto& paddings = items_of(*all, where);
  check_input(paddings.size() == groups_.size(), "{}: is for {} groups, param_shapes has {}", where,
              paddings.size(), groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<int64_t> numbers = shape_of(*paddings[g], where);
    check_input(numbers.size() == groups_[g].size(),
                "{}: group {} has {} numbers, param_shapes has {} parameters", where, g,
                numbers.size(), groups_[g].size());
    for (size_t i = 0; i < numbers.size(); ++i) groups_[g][i].padding = numbers[i];
  }
}

void DeepSpeedFolder::read_tied() {
  const TorchFile& model = *files_.models[0];
  const PickleValue* shared = model.root().find("shared_params");
  if (shared == nullptr) return;
  const std::string where = model.path() + ": shared_params";
  for (const auto& [name, same] : shared->pairs) {
    tied_[text_of(*name, where)] = text_of(*same, where);
  }
}

FileInterval DeepSpeedFolder::flat_tensor(const SharedTorchFile& file, const PickleValue& value,
                                          const std::string& where) const {
  auto tensor = file->tensor(value, where);
  check_input(tensor.has_value(), "{}: is {}, expected a tensor", where, value.describe());
  const int64_t numel = *checked_numel(tensor->shape);
  return {file, std::make_shared<const TorchTensor>(std::move(*tensor)), 0, numel};
}

DeepSpeedFolder::Intervals DeepSpeedFolder::flat_weights(size_t rank) const {
  const char* key = stage_ == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
  const std::string where = fmt::format("{}: {}", where_optimizer(rank), key);
  Intervals flat;
  for (const auto* value : items_of(field_of(optimizer(rank), key, where), where)) {
    flat.push_back(
        flat_tensor(files_.optimizers[rank], *value, fmt::format("{}[{}]", where, flat.size())));
  }
  return flat;
}

const PickleValue* DeepSpeedFolder::state_of_group(size_t rank, size_t group) const {
  const PickleValue* base =
      optimizer(rank).find(stage_ == 3 ? "optimizer_state_dict" : "base_optimizer_state");
  const PickleValue* all = base == nullptr ? nullptr : base->find("state");
  return all == nullptr ? nullptr : find_number(*all, static_cast<int64_t>(group));
}

int64_t DeepSpeedFolder::optimizer_steps() const {
  const PickleValue* state = state_of_group(0, 0);
  const PickleValue* step = state == nullptr ? nullptr : state->find("step");
  const auto found = step == nullptr
                         ? std::nullopt
                         : count_in(*files_.optimizers[0], *step, where_optimizer(0) + ": step");
  return found.value_or(num_steps_ - num_skipped_);
}

std::optional<SavedLossScale> DeepSpeedFolder::loss_scale() const {
  const PickleValue* scaler = optimizer(0).find("loss_scaler");
  if (scaler == nullptr) return std::nullopt;
  return deepspeed_loss_scale(*scaler, where_optimizer(0) + ": loss_scaler");
}

std::optional<int64_t> DeepSpeedFolder::scheduler_steps() const {
  const TorchFile& model = *files_.models[0];
  const PickleValue* state = model.root().find("lr_scheduler");
  return state == nullptr ? std::nullopt : schedule_steps(*state, model.path() + ": lr_scheduler");
}

// A state has values of every parameter: a flat tensor of every group on every rank.
void DeepSpeedFolder::find_states() {
  std::map<std::string, size_t> found;
  const size_t num_groups = flat_weights(0).size();
  for (size_t rank = 0; rank < files_.optimizers.size(); ++rank) {
    for (size_t group = 0; group < num_groups; ++group) {
      const PickleValue* state = state_of_group(rank, group);
      if (state == nullptr) continue;
      for (const auto& [key, value] : state->pairs) {
        if (key->kind != PickleKind::text) continue;
        const auto tensor = files_.optimizers[rank]->tensor(
            *value, fmt::format("{}: state '{}'", where_optimizer(rank), key->text));
        if (tensor && tensor->shape.size() == 1) ++found[key->text];
      }
    }
  }
  for (const auto& [name, count] : found) {
    if (count == num_groups * files_.optimizers.size()) states_.push_back(name);
  }
}

DeepSpeedFolder::Intervals DeepSpeedFolder::flat_states(size_t rank,
                                                        const std::string& name) const {
  const std::string where = fmt::format("{}: state '{}'", where_optimizer(rank), name);
  Intervals flat;
  for (size_t group = 0; const PickleValue* state = state_of_group(rank, group); ++group) {
    flat.push_back(flat_tensor(files_.optimizers[rank], field_of(*state, name, where), where));
  }
  return flat;
}

// What a rank records about the parameters in its part must match their places by the order of the
// files: otherwise files of two ranks, or of two models, were exchanged.
void DeepSpeedFolder::check_slices() const {
  std::vector<int64_t> begins(groups_.size(), 0);  // of this rank, in each group
  for (size_t rank = 0; rank < files_.optimizers.size(); ++rank) {
    const PickleValue* all = optimizer(rank).find("param_slice_mappings");
    if (all == nullptr || all->items.size() != groups_.size()) return;
    const Intervals flat = flat_weights(rank);
    for (size_t g = 0; g < groups_.size() && g < flat.size(); ++g) {
      int64_t at = 0;
      for (const Parameter& parameter : groups_[g]) {
        const int64_t from = std::max(at, begins[g]);
        const int64_t to = std::min(at + parameter.numel, begins[g] + flat[g].numel);
        const int64_t numel = std::max<int64_t>(to - from, 0);
        const int64_t first = numel > 0 ? from - begins[g] : 0;
        const PickleValue* said = all->items[g]->find(parameter.name);
        const auto number = [&](const char* key) {
          const PickleValue* value = said == nullptr ? nullptr : find_attribute(*said, key);
          return value == nullptr ? 0 : number_in(*value).value_or(-1);
        };
        check_input(number("numel") == numel && number("start") == first,
                    "{}: records {} elements of '{}' from its element {} on, expected "
                    "{} from {} on; files of two ranks or checkpoints were exchanged",
                    where_optimizer(rank), number("numel"), parameter.name, number("start"), numel,
                    first);
        at += parameter.numel + parameter.padding;
      }
      begins[g] += flat[g].numel;
    }
  }
}

void DeepSpeedFolder::add_trained(IntervalSource& source, const FlatOfRank& flat) const {
  for (size_t rank = 0; rank < flat.size(); ++rank) {
    check_input(flat[rank].size() == flat[0].size(), "{}: has {} flat groups, rank 0 has {}",
                where_optimizer(rank), flat[rank].size(), flat[0].size());
  }
  if (stage_ == 3) {
    add_cut_by_parameter(source, flat);
  } else {
    add_cut_by_group(source, flat);
  }
}

// DeepSpeed pads a group to a multiple of twice the ranks and may have saved that or not.
void DeepSpeedFolder::check_group_numel(size_t group, int64_t found) const {
  int64_t numel = 0;
  for (const Parameter& parameter : groups_[group]) numel += parameter.numel + parameter.padding;
  const int64_t multiple = 2 * num_ranks();
  check_input(divide_up(numel, multiple) == divide_up(found, multiple),
              "{}: group {} has {} elements in all files, its parameters have {}; the files belong "
              "to two models",
              files_.folder, group, found, numel);
}

void DeepSpeedFolder::add_cut_by_group(IntervalSource& source, const FlatOfRank& flat) const {
  check_input(flat[0].size() == groups_.size(), "{}: has {} flat groups, param_shapes has {}",
              where_optimizer(0), flat[0].size(), groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    Intervals whole;
    for (const auto& of_rank : flat) whole.push_back(of_rank[g]);
    check_group_numel(g, total_numel(whole));
    int64_t at = 0;
    for (const Parameter& parameter : groups_[g]) {
      source.add(parameter.name, parameter.shape,
                 or_empty(slice(whole, at, parameter.numel), whole));
      at += parameter.numel + parameter.padding;
    }
  }
}

void DeepSpeedFolder::add_cut_by_parameter(IntervalSource& source, const FlatOfRank& flat) const {
  int64_t at = 0;
  for (const Group& group : groups_) {
    for (const Parameter& parameter : group) {
      const int64_t part = divide_up(parameter.numel, num_ranks());
      Intervals whole;
      for (const auto& of_rank : flat) {
        for (auto& interval : slice(of_rank, at, part)) whole.push_back(std::move(interval));
      }
      source.add(parameter.name, parameter.shape, or_empty(std::move(whole), flat[0]));
      at += part;
    }
  }
  for (size_t rank = 0; rank < flat.size(); ++rank) {
    check_input(total_numel(flat[rank]) == at,
                "{}: its flat groups have {} elements, the parameters' parts {}; the files belong "
                "to two models",
                where_optimizer(rank), total_numel(flat[rank]), at);
  }
}

void DeepSpeedFolder::add_buffers(IntervalSource& source) const {
  const SharedTorchFile& model = files_.models[0];
  const PickleValue& module = field_of(model->root(), "module", model->path());
  const std::string where = model->path() + ": buffer_names";
  for (const auto* item : field_of(model->root(), "buffer_names", model->path()).items) {
    const std::string name = text_of(*item, where);
    const PickleValue* value = module.find(name);
    if (value == nullptr) continue;  // not persistent
    const FileInterval whole =
        flat_tensor(model, *value, fmt::format("{}: module: '{}'", model->path(), name));
    source.add(name, whole.tensor->shape, {whole});
  }
}

void DeepSpeedFolder::add_frozen(IntervalSource& source) const {
  const TorchFile& model = *files_.models[0];
  const PickleValue* shapes = model.root().find("frozen_param_shapes");
  if (shapes == nullptr) return;
  for (const auto& [key, shape] : shapes->pairs) {
    const std::string name = text_of(*key, model.path() + ": frozen_param_shapes");
    Intervals whole;
    for (const auto& file : files_.models) {
      const std::string where = fmt::format("{}: frozen_param_fragments: '{}'", file->path(), name);
      const auto& fragments = field_of(file->root(), "frozen_param_fragments", file->path());
      whole.push_back(flat_tensor(file, field_of(fragments, name, where), where));
    }
    source.add(name, shape_of(*shape, model.path() + ": frozen_param_shapes"), whole);
  }
}

// Stage 1 saves no fragments of frozen parameters, but the module holds all parameters, unsharded
// and in the compute dtype.
void DeepSpeedFolder::add_module_rest(IntervalSource& source) const {
  const SharedTorchFile& model = files_.models[0];
  for (const auto& [key, value] : field_of(model->root(), "module", model->path()).pairs) {
    const std::string name = text_of(*key, model->path() + ": module");
    if (tied_.contains(name) || source.find(name) != nullptr) continue;
    const std::string where = fmt::format("{}: module: '{}'", model->path(), name);
    if (!model->tensor(*value, where)) continue;
    const FileInterval whole = flat_tensor(model, *value, where);
    source.add(name, whole.tensor->shape, {whole});
  }
}

std::unique_ptr<TensorSource> DeepSpeedFolder::weights(bool with_frozen) const {
  auto source = std::make_unique<IntervalSource>();
  FlatOfRank flat;
  for (size_t rank = 0; rank < files_.optimizers.size(); ++rank) flat.push_back(flat_weights(rank));
  add_trained(*source, flat);
  add_buffers(*source);
  if (with_frozen) add_frozen(*source);
  if (with_frozen && stage_ <= 2) add_module_rest(*source);
  for (const auto& [name, same] : tied_) source->add_name(name, same);
  return source;
}

std::unique_ptr<TensorSource> DeepSpeedFolder::state(const std::string& name) const {
  auto source = std::make_unique<IntervalSource>();
  FlatOfRank flat;
  for (size_t rank = 0; rank < files_.optimizers.size(); ++rank) {
    flat.push_back(flat_states(rank, name));
  }
  add_trained(*source, flat);
  return source;
}

}  // namespace fullshard::formats
