#include "fullshard/formats/optimizer_file.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <set>
#include <utility>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/interval_source.h"
#include "fullshard/formats/pickle_fields.h"

namespace fullshard {
namespace {

const PickleValue& all_states(const TorchFile& file) {
  const PickleValue& all = field_of(file.root(), "state", file.path());
  check_input(all.kind == PickleKind::dict, "{}: state: is {}, expected a dictionary", file.path(),
              all.describe());
  return all;
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
  const at::Tensor number = at::empty({1}, at::TensorOptions().dtype(at::kDouble));
  file.read(*tensor, 0, number, where);
  const double count = *number.const_data_ptr<double>();
  check_input(count >= 0 && count < 1e15, "{}: is {}, expected a count", where, count);
  return static_cast<int64_t>(count);
}

OptimizerFile::OptimizerFile(const std::string& path)
    : file_(std::make_shared<const TorchFile>(path)) {
  std::set<std::string> found;
  for (const auto& [parameter, state] : all_states(*file_).pairs) {
    has_names_ = has_names_ && parameter->kind == PickleKind::text;
    for (const auto& [key, value] : state->pairs) {
      if (key->kind != PickleKind::text) continue;
      const std::string where = fmt::format("{}: state '{}'", path, key->text);
      if (key->text == "step") {
        if (!num_steps_) num_steps_ = count_in(*file_, *value, where);
      } else if (file_->tensor(*value, where)) {
        found.insert(key->text);
      }
    }
  }
  if (has_names_) states_.assign(found.begin(), found.end());
}

std::unique_ptr<TensorSource> OptimizerFile::state(const std::string& name) const {
  auto source = std::make_unique<IntervalSource>();
  for (const auto& [parameter, state] : all_states(*file_).pairs) {
    const PickleValue* value = state->find(name);
    if (value == nullptr || parameter->kind != PickleKind::text) continue;
    const std::string where =
        fmt::format("{}: state '{}' of '{}'", file_->path(), name, parameter->text);
    auto tensor = file_->tensor(*value, where);
    if (!tensor) continue;
    const auto numel = checked_numel(tensor->shape);
    check_input(numel.has_value(), "{}: its shape is impossible", where);
    const auto shape = tensor->shape;
    source->add(parameter->text, shape,
                {{file_, std::make_shared<const TorchTensor>(std::move(*tensor)), 0, *numel}});
  }
  return source;
}

}  // namespace fullshard
