// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/optimizer_file.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/pickle/pickle_fields.h"
#include "fullshard/formats/torch/interval_source.h"

namespace fullshard::formats {
namespace {

const PickleValue& all_states(const TorchFile& file) {
  const PickleValue& all = field_of(file.root(), "state", file.path());
  check_input(all.kind == PickleKind::dict, "{}: state: is {}, expected a dictionary", file.path(),
              all.describe());
  return all;
}

// "3" for a number that has no name.
std::string name_of(const PickleValue& parameter, const std::vector<std::string>& names,
                    const std::string& path) {
  if (parameter.kind == PickleKind::text) return parameter.text;
  const int64_t number = number_of(parameter, path + ": state: a parameter");
  if (names.empty()) return std::to_string(number);
  check_input(number >= 0 && number < static_cast<int64_t>(names.size()),
              "{}: state: has a parameter {}, its groups have {}", path, number, names.size());
  return names[static_cast<size_t>(number)];
}

}  // namespace

std::optional<int64_t> count_in(const TorchFile& file, const PickleValue& value,
                                const std::string& where) {
  if (const auto number = number_in(value)) return number;
  if (value.kind == PickleKind::real) return static_cast<int64_t>(value.real);
  const auto tensor = file.tensor(value, where);
  if (!tensor || checked_numel(tensor->shape) != 1 || !is_readable(tensor->dtype)) {
    return std::nullopt;
  }
  double count = 0;
  file.read(*tensor, 0, ElementSpan(count), where);
  check_input(count >= 0 && count < 1e15, "{}: is {}, expected a count", where, count);
  return static_cast<int64_t>(count);
}

OptimizerFile::OptimizerFile(const std::string& path)
    : file_(std::make_shared<const TorchFile>(path)) {
  for (const auto& [parameter, state] : all_states(*file_).pairs) {
    has_names_ = has_names_ && parameter->kind == PickleKind::text;
  }
  if (!has_names_) read_groups();
  find_states();
}

void OptimizerFile::read_groups() {
  const PickleValue* groups = file_->root().find("param_groups");
  if (groups == nullptr) return;
  const std::string where = path() + ": param_groups";
  bool all_are_named = true;
  int64_t next = 0;
  for (const auto* group : items_of(*groups, where)) {
    const std::vector<int64_t> numbers = shape_of(field_of(*group, "params", where), where);
    for (const int64_t number : numbers) {
      check_input(number == next, "{}: has the parameter {} where {} is expected", where, number,
                  next);
      ++next;
    }
    group_sizes_.push_back(static_cast<int64_t>(numbers.size()));
    const PickleValue* names = group->find("param_names");
    all_are_named = all_are_named && (numbers.empty() || names != nullptr);
    if (names == nullptr) continue;
    for (const auto* name : items_of(*names, where)) names_.push_back(text_of(*name, where));
  }
  has_names_ = all_are_named && next > 0;
  if (!has_names_) names_.clear();
  check_input(names_.empty() || static_cast<int64_t>(names_.size()) == next,
              "{}: names {} parameters of {}", where, names_.size(), next);
}

void OptimizerFile::find_states() {
  std::set<std::string> found;
  for (const auto& [parameter, state] : all_states(*file_).pairs) {
    for (const auto& [key, value] : state->pairs) {
      if (key->kind != PickleKind::text) continue;
      const std::string where = fmt::format("{}: state '{}'", path(), key->text);
      if (key->text == "step") {
        if (!num_steps_) num_steps_ = count_in(*file_, *value, where);
      } else if (file_->tensor(*value, where)) {
        found.insert(key->text);
      }
    }
  }
  states_.assign(found.begin(), found.end());
}

std::unique_ptr<TensorSource> OptimizerFile::state(const std::string& name) const {
  return state(name, names_);
}

std::unique_ptr<TensorSource> OptimizerFile::state(const std::string& name,
                                                   const std::vector<std::string>& names) const {
  auto source = std::make_unique<IntervalSource>();
  for (const auto& [key, state] : all_states(*file_).pairs) {
    const PickleValue* value = state->find(name);
    if (value == nullptr) continue;
    const std::string parameter = name_of(*key, names, path());
    const std::string where = fmt::format("{}: state '{}' of '{}'", path(), name, parameter);
    auto tensor = file_->tensor(*value, where);
    if (!tensor) continue;
    const auto numel = checked_numel(tensor->shape);
    check_input(numel.has_value(), "{}: its shape is impossible", where);
    const auto shape = tensor->shape;
    source->add(parameter, shape,
                {{file_, std::make_shared<const TorchTensor>(std::move(*tensor)), 0, *numel}});
  }
  return source;
}

}  // namespace fullshard::formats
