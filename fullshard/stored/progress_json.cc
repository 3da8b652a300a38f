// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/progress_json.h"

#include <nlohmann/json.hpp>

#include "fullshard/formats/safetensors/strict_json.h"
#include "fullshard/stored/json_fields.h"

namespace fullshard::stored {

using nlohmann::json;

json progress_json(const Progress& progress) {
  json result = {{"step", progress.step}, {"num_skipped", progress.num_skipped}};
  if (progress.scheduler_steps) result["scheduler_steps"] = *progress.scheduler_steps;
  if (const auto& scale = progress.loss_scale) {
    result["loss_scale"] = {{"scale", scale->scale},
                            {"iteration", scale->iteration},
                            {"last_overflow", scale->last_overflow},
                            {"hysteresis", scale->hysteresis}};
  }
  if (const auto& data = progress.data) {
    result["data"] = {{"step", data->step}, {"micro_batch", data->micro_batch}};
  }
  if (const auto& best = progress.best) {
    result["best"] = {{"step", best->step}, {"loss", best->loss}};
    if (best->evaluations_without > 0) {
      result["best"]["evaluations_without"] = best->evaluations_without;
    }
  }
  result["extra"] = formats::parse_strict_json(progress.extra, "progress: extra");
  return result;
}

Progress parse_progress(const json& value, const std::string& where) {
  const JsonFields fields(value, where);
  Progress progress;
  progress.step = fields.at("step").integer();
  progress.num_skipped = fields.at("num_skipped").integer();
  if (fields.has("scheduler_steps")) {
    progress.scheduler_steps = fields.at("scheduler_steps").integer();
  }
  if (fields.has("loss_scale")) {
    const auto scale = fields.at("loss_scale");
    progress.loss_scale = {.scale = scale.at("scale").number(),
                           .iteration = scale.at("iteration").integer(),
                           .last_overflow = scale.at("last_overflow").integer(-1),
                           .hysteresis = static_cast<int>(scale.at("hysteresis").integer())};
  }
  if (fields.has("data")) {
    const auto data = fields.at("data");
    progress.data = {data.at("step").integer(), data.at("micro_batch").integer()};
  }
  if (fields.has("best")) {
    const auto best = fields.at("best");
    progress.best = {.step = best.at("step").integer(), .loss = best.at("loss").number()};
    if (best.has("evaluations_without")) {
      progress.best->evaluations_without = best.at("evaluations_without").integer();
    }
  }
  progress.extra = fields.at("extra").value().dump();
  return progress;
}

}  // namespace fullshard::stored
