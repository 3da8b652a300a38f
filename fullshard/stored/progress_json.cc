// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/progress_json.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "fullshard/formats/input_error.h"
#include "fullshard/formats/safetensors/strict_json.h"
#include "fullshard/stored/json_fields.h"

namespace fullshard::stored {

using nlohmann::json;

namespace {

// Seeds have 64 bits, which not every JSON reader represents exactly.
json place_json(const DataPlace& place) {
  json result = {{"epoch", place.epoch},
                 {"example", place.example},
                 {"num_examples", place.num_examples},
                 {"order", place.order},
                 {"seed", std::to_string(place.seed)}};
  if (place.mixture) result["mixture"] = *place.mixture;
  return result;
}

// A loop continues counting from these numbers, which must not overflow.
constexpr int64_t kMostCounted = int64_t{1} << 53;

int64_t count(const JsonFields& field) {
  const int64_t number = field.integer();
  if (number > kMostCounted) field.reject("a whole number from 0 to 2^53");
  return number;
}

DataPlace parse_place(const JsonFields& fields) {
  DataPlace place{.epoch = count(fields.at("epoch")),
                  .example = count(fields.at("example")),
                  .num_examples = fields.at("num_examples").integer(1),
                  .order = fields.at("order").text()};
  if (fields.has("mixture")) place.mixture = fields.at("mixture").text();
  const std::string seed = fields.at("seed").text();
  const char* const end = seed.data() + seed.size();
  const auto [rest, problem] = std::from_chars(seed.data(), end, place.seed);
  if (problem != std::errc() || rest != end) fields.at("seed").reject("a number of 64 bits");
  return place;
}

}  // namespace

json progress_json(const Progress& progress) {
  json result = {{"step", progress.step}, {"num_skipped", progress.num_skipped}};
  if (progress.scheduler_steps) result["scheduler_steps"] = *progress.scheduler_steps;
  if (!progress.base_lrs.empty()) result["base_lrs"] = progress.base_lrs;
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
  formats::check_input(result["extra"].is_object(),
                       "progress: extra: is a JSON {}, expected an object; name what you keep",
                       result["extra"].type_name());
  return result;
}

Progress parse_progress(const json& value, const std::string& where) {
  const JsonFields fields(value, where);
  Progress progress;
  progress.step = count(fields.at("step"));
  progress.num_skipped = count(fields.at("num_skipped"));
  if (fields.has("scheduler_steps")) {
    progress.scheduler_steps = count(fields.at("scheduler_steps"));
  }
  if (fields.has("base_lrs")) {
    for (const auto& rate : fields.at("base_lrs").items()) {
      progress.base_lrs.push_back(rate.number());
    }
  }
  if (fields.has("loss_scale")) {
    const auto scale = fields.at("loss_scale");
    progress.loss_scale = {.scale = scale.at("scale").number(),
                           .iteration = count(scale.at("iteration")),
                           .last_overflow = scale.at("last_overflow").integer(-1),
                           .hysteresis = static_cast<int>(scale.at("hysteresis").integer())};
  }
  if (fields.has("data")) {
    const auto data = fields.at("data");
    progress.data = {.step = count(data.at("step")), .micro_batch = count(data.at("micro_batch"))};
    if (data.has("place")) progress.data->place = parse_place(data.at("place"));
  }
  if (fields.has("best")) {
    const auto best = fields.at("best");
    progress.best = {.step = count(best.at("step")), .loss = best.at("loss").number()};
    if (best.has("evaluations_without")) {
      progress.best->evaluations_without = count(best.at("evaluations_without"));
    }
  }
  progress.extra = fields.at("extra").value().dump();
  return progress;
}

}  // namespace fullshard::stored
