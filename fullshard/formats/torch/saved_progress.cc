// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/saved_progress.h"

#include <cmath>
#include <string_view>

#include "fullshard/formats/input_error.h"
#include "fullshard/formats/pickle/pickle_fields.h"

namespace fullshard::formats {
namespace {

constexpr int64_t kMostSteps = int64_t{1} << 50;

double real_of(const PickleValue* value, const char* name, const std::string& where) {
  const auto number = value == nullptr ? std::nullopt : real_in(*value);
  check_input(number.has_value(), "{}: its {} is {}, expected a number", where, name,
              value == nullptr ? "absent" : value->describe());
  return *number;
}

double checked_scale(const PickleValue* value, const char* name, const std::string& where) {
  const double scale = real_of(value, name, where);
  check_input(std::isfinite(scale) && scale > 0, "{}: its {} is {}, expected a positive number",
              where, name, scale);
  return scale;
}

int64_t count_of(const PickleValue* value, const char* name, int64_t least,
                 const std::string& where) {
  const double count = real_of(value, name, where);
  check_input(count >= static_cast<double>(least) && count <= static_cast<double>(kMostSteps),
              "{}: its {} is {}, expected a count", where, name, count);
  return static_cast<int64_t>(count);
}

}  // namespace

std::optional<SavedLossScale> deepspeed_loss_scale(const PickleValue& scaler,
                                                   const std::string& where) {
  const std::string_view name = scaler.class_name();
  if (!name.ends_with("LossScaler")) return std::nullopt;
  SavedLossScale saved{.is_dynamic = name.ends_with("DynamicLossScaler")};
  const auto field = [&](const char* key) { return find_attribute(scaler, key); };
  saved.scale = checked_scale(field("cur_scale"), "cur_scale", where);
  if (!saved.is_dynamic) return saved;
  saved.factor = checked_scale(field("scale_factor"), "scale_factor", where);
  saved.iteration = count_of(field("cur_iter"), "cur_iter", 0, where);
  saved.last_overflow = count_of(field("last_overflow_iter"), "last_overflow_iter", -1, where);
  saved.hysteresis =
      static_cast<int>(count_of(field("cur_hysteresis"), "cur_hysteresis", 1, where));
  return saved;
}

std::optional<SavedLossScale> grad_scaler_loss_scale(const PickleValue& state,
                                                     const std::string& where) {
  if (state.kind != PickleKind::dict || state.find("scale") == nullptr) return std::nullopt;
  SavedLossScale saved;
  saved.scale = checked_scale(state.find("scale"), "scale", where);
  if (const auto* factor = state.find("growth_factor")) {
    saved.factor = checked_scale(factor, "growth_factor", where);
  }
  // DeepSpeed doubles one good step later than its window says; torch does not.
  saved.iteration = count_of(state.find("_growth_tracker"), "_growth_tracker", 0, where) + 1;
  return saved;
}

std::optional<int64_t> schedule_steps(const PickleValue& state, const std::string& where) {
  if (state.kind != PickleKind::dict) return std::nullopt;
  if (const auto* last = state.find("last_batch_iteration")) {
    return count_of(last, "last_batch_iteration", -1, where) + 1;
  }
  if (const auto* steps = state.find("last_epoch")) {
    return count_of(steps, "last_epoch", 0, where);
  }
  return std::nullopt;
}

}  // namespace fullshard::formats
