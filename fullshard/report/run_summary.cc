// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/run_summary.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "fullshard/report/records/run_totals.h"

namespace fullshard::report {
namespace {

using Json = nlohmann::ordered_json;

// As in metrics.jsonl: JSON cannot express values that are not finite.
Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json best(const std::optional<BestLoss>& loss) {
  if (!loss) return nullptr;
  return {{"loss", json_number(loss->loss)}, {"step", loss->step}};
}

void add_record(const RunRecord& record, Json& summary) {
  summary["status"] = std::string(name_of(record.status));
  summary["problem"] = record.problem;
  summary["model"] = record.model.name;
  summary["parameters"] = record.model.parameters;
  summary["ranks"] = record.mesh.world;
  summary["shards"] = record.mesh.shards;
  summary["device"] = record.device;
  summary["planned_steps"] = record.num_steps;
  summary["first_step"] = record.first_step.value_or(0);
  summary["warnings"] = record.warnings;
}

void add_totals(const RunTotals& totals, Json& summary) {
  const auto& last = totals.last();
  summary["steps"] = last ? last->step : 0;
  summary["counted_since"] = totals.first_step();
  summary["loss"] = last ? json_number(last->loss) : Json(nullptr);
  summary["best"] = best(totals.best());
  summary["evaluation"] = best(totals.last_evaluation());
  summary["best_evaluation"] = best(totals.best_evaluation());
  summary["skipped_steps"] = totals.num_skipped();
  summary["tokens"] = totals.tokens();
  summary["step_seconds"] = totals.seconds();
  summary["tokens_per_s"] = json_number(totals.median_tokens_per_s());
  const auto mfu = totals.median_mfu();
  summary["mfu"] = mfu ? json_number(*mfu) : Json(nullptr);
  summary["device_peak_bytes"] = totals.device_peak_bytes();
  summary["host_peak_bytes"] = totals.host_peak_bytes();
}

}  // namespace

std::string run_summary_json(const RunFolder& run, const std::string& page, bool is_live) {
  Json summary = {{"folder", run.path}, {"page", page}, {"live", is_live}};
  summary["status"] = "unknown";  // if there is no run.json
  if (run.record) add_record(*run.record, summary);
  add_totals(run.metrics.totals(), summary);
  summary["problems"] = run.problems;
  // Names in a folder need not be UTF-8.
  return summary.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fullshard::report
