#include "fullshard/config/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "fullshard/config/checks.h"
#include "fullshard/config/explain.h"
#include "fullshard/config/plan_maker.h"
#include "fullshard/config/reader.h"

namespace fullshard {

Plan Plan::load(const std::string& file, const PlanOptions& options) {
  const ConfigText source = read_config_file(file);
  return parse(source.text, source.name, options);
}

Plan Plan::parse(std::string_view text, const std::string& name, const PlanOptions& options) {
  PlanReading reading = read_plan(text, name, options);
  reading.problems.throw_if_any();
  return std::move(reading.plan);
}

void Plan::check(std::optional<int64_t> ranks, std::optional<std::string> device) const {
  Problems problems;
  check_plan(*this, ranks, device, problems);
  problems.throw_if_any();
}

std::vector<std::string> Plan::unresolved() const {
  std::vector<std::string> keys;
  if (settings_ != nullptr) keys = unresolved_keys(*settings_);
  if (deepspeed_ != nullptr) {
    for (std::string& key : unresolved_keys(*deepspeed_)) keys.push_back(std::move(key));
  }
  return keys;
}

std::string Plan::effective_json() const { return explain(*this).json(); }

PlanReading read_plan(std::string_view text, const std::string& name, const PlanOptions& options) {
  PlanReading reading;
  reading.plan = PlanMaker(options, reading.problems).make(text, name);
  return reading;
}

}  // namespace fullshard
