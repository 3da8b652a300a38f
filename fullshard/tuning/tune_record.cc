// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/tune_record.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/text_file.h"
#include "fullshard/report/records/run_file.h"

namespace fullshard::tuning {
namespace {

using nlohmann::ordered_json;

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json json_of(const RungResult& result) {
  return {{"name", result.rung.title()},
          {"config",
           result.config.empty() ? ordered_json(nullptr) : ordered_json::parse(result.config)},
          {"fits", result.fits},
          {"planned_bytes", or_null(result.planned_bytes)},
          {"peak_bytes", or_null(result.peak_bytes)},
          {"tokens_per_s", or_null(result.tokens_per_s)},
          {"micro_batch", result.rung.micro_batch},
          {"measured", result.is_measured},
          {"why", result.why}};
}

// The same for texts that differ in white space only.
std::string key_of(const std::string& config) { return ordered_json::parse(config).dump(); }

MeasuredRung measured_in(const ordered_json& rung) {
  const auto& peak = rung.at("peak_bytes");
  const auto& speed = rung.at("tokens_per_s");
  return {.fits = rung.at("fits"),
          .peak_bytes = peak.is_null() ? 0 : peak.get<int64_t>(),
          .tokens_per_s = speed.is_null() ? 0 : speed.get<double>(),
          .why = rung.at("why")};
}

// A path in a message may hold any bytes.
std::string dumped(const ordered_json& value, int indent = -1) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

std::string rungs_json(const Climbed& climbed) {
  ordered_json all = ordered_json::array();
  for (size_t index = 0; index < climbed.results.size(); ++index) {
    if (climbed.winner != index) all.push_back(json_of(climbed.results[index]));
  }
  if (climbed.winner) all.push_back(json_of(climbed.results[*climbed.winner]));
  return dumped(all);
}

TuneRecord::TuneRecord(std::string path, std::string question, bool begins_anew)
    : path_(std::move(path)), question_(std::move(question)) {
  if (begins_anew) return;
  if (const auto text = base::find_text_file(path_)) load(*text);
}

void TuneRecord::load(const std::string& text) {
  ordered_json before;
  std::string asked;
  try {
    before = base::parse_json<ordered_json>(text);
    asked = before.at("question");
    for (const ordered_json& rung : before.at("rungs")) {
      const std::string title = rung.at("name");
      order_.push_back(title);
      rungs_[title] = rung.dump();
      if (rung.at("measured")) measured_[rung.at("config").dump()] = measured_in(rung);
    }
  } catch (const base::JsonError& problem) {
    fail_as(ErrorKind::input, "{}: {}; --overwrite starts again", path_, problem.what());
  } catch (const nlohmann::json::exception&) {
    fail_as(ErrorKind::input, "{}: is not a tune record; --overwrite starts again", path_);
  }
  if (asked == question_) return;
  fail_as(ErrorKind::usage,
          "{}: is about another run ({}); give another --output, or --overwrite to start again",
          path_, asked);
}

std::optional<MeasuredRung> TuneRecord::measured(const std::string& config) const {
  const auto found = measured_.find(key_of(config));
  return found == measured_.end() ? std::nullopt : std::optional(found->second);
}

void TuneRecord::add(const RungResult& result) {
  const std::string title = result.rung.title();
  const ordered_json rung = json_of(result);
  if (!rungs_.contains(title)) order_.push_back(title);
  rungs_[title] = dumped(rung);
  if (result.is_measured) measured_[rung.at("config").dump()] = measured_in(rung);
  write();
}

void TuneRecord::set_status(const std::string& status, const std::string& winner) {
  status_ = status;
  winner_ = winner;
  write();
}

void TuneRecord::write() const {
  ordered_json rungs = ordered_json::array();
  for (const std::string& title : order_) rungs.push_back(ordered_json::parse(rungs_.at(title)));
  const ordered_json all = {
      {"question", question_},
      {"status", status_},
      {"winner", winner_.empty() ? ordered_json(nullptr) : ordered_json(winner_)},
      {"rungs", rungs}};
  report::write_whole_file(path_, dumped(all, 1) + "\n");
}

MeasuredRung RecordedTrials::measure(const Rung& rung, const std::string& config) {
  if (const auto known = record_.measured(config)) return *known;
  return inner_.measure(rung, config);
}

// A known result takes no time.
bool RecordedTrials::has_time(const Rung& rung, std::optional<double> tokens_per_s) {
  return record_.measured(inner_.config(rung)) || inner_.has_time(rung, tokens_per_s);
}

void RecordedTrials::note(const RungResult& result) {
  record_.add(result);
  inner_.note(result);
}

}  // namespace fullshard::tuning
