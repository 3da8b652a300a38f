// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/progress_json.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "fullshard/formats/safetensors/strict_json.h"
#include "fullshard/stored/json_fields.h"

namespace fullshard::stored {

using nlohmann::json;

namespace {

// Seeds have 64 bits, which not every reader of JSON numbers keeps.
json place_json(const DataPlace& place) {
  return {{"epoch", place.epoch},
          {"example", place.example},
          {"num_examples", place.num_examples},
          {"order", place.order},
          {"seed", std::to_string(place.seed)}};
}

DataPlace parse_place(const JsonFields& fields) {
  DataPlace place{.epoch = fields.at("epoch").integer(),
                  .example = fields.at("example").integer(),
                  .num_examples = fields.at("num_examples").integer(1),
                  .order = fields.at("order").text()};
  const std::string& seed = fields.at("seed").text();
  const char* const end = seed.data() + seed.size();
  const auto [rest, problem] = std::from_chars(seed.data(), end, place.seed);
  if (problem != std::errc() || rest != end) fields.at("seed").reject("a number of 64 bits");
  return place;
}

}  // namespace

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
    if (data->place) result["data"]["place"] = place_json(*data->place);
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
    progress.data = {.step = data.at("step").integer(),
                     .micro_batch = data.at("micro_batch").integer()};
    if (data.has("place")) progress.data->place = parse_place(data.at("place"));
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
