// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "fullshard/base/rank_notice.h"
#include "fullshard/config/checks.h"
#include "fullshard/config/document/reader.h"
#include "fullshard/config/explain.h"
#include "fullshard/config/plan_maker.h"

namespace fullshard {

Plan Plan::load(const std::string& file, const PlanOptions& options) {
  const auto launcher = base::LauncherEnvironment::of_process();
  if (launcher.config.file.text == file) {  // the program looked it up itself
    base::tell_launcher(launcher.meeting, base::RankNotice::has_read_config);
  }
  const config::ConfigText source = config::read_config_file(file);
  return parse(source.text, source.name, options);
}

Plan Plan::parse(std::string_view text, const std::string& name, const PlanOptions& options) {
  PlanReading reading = read_plan(text, name, options);
  reading.problems.throw_if_any();
  return std::move(reading.plan);
}

void Plan::check(std::optional<int64_t> ranks, std::optional<std::string> device) const {
  Problems problems;
  config::check_plan(*this, ranks, device, problems);
  problems.throw_if_any();
}

std::vector<std::string> Plan::unresolved() const {
  // Accelerate's own keys that may be "auto" are among DeepSpeed's too.
  const config::Settings* settings = deepspeed_ != nullptr ? deepspeed_.get() : settings_.get();
  return settings != nullptr ? unresolved_keys(*settings) : std::vector<std::string>();
}

void Plan::check_resolved() const {
  Problems problems;
  for (const std::string& path : unresolved()) {
    if (need_of(path) != AutoNeed::hidden_size) continue;
    const Origin& origin = (deepspeed_ != nullptr ? deepspeed_ : settings_)->find(path)->origin;
    problems.errors.push_back(
        {.file = origin.file,
         .line = origin.line,
         .key = path,
         .message = fmt::format("is \"auto\", which needs {}", name_of(AutoNeed::hidden_size)),
         .suggestion = "write a number, or give PlanOptions::inputs.hidden_size"});
  }
  problems.sort();
  problems.throw_if_any();
}

BatchSizes Plan::batch_sizes(int64_t ranks) const {
  const auto given = [](const Setting<std::optional<int64_t>>& size) {
    return size.origin.ranks == 0 ? size.value : std::nullopt;
  };
  BatchSizeOptions sizes{given(batch.global), given(batch.micro), given(batch.accumulation)};
  if (!sizes.train_batch_size && !sizes.train_micro_batch_size_per_gpu) {
    sizes.train_micro_batch_size_per_gpu = AutoInputs{}.per_device_train_batch_size;
  }
  return derive_batch_sizes(sizes, ranks);
}

std::string Plan::effective_json() const { return config::explain(*this).json(); }

PlanReading read_plan(std::string_view text, const std::string& name, const PlanOptions& options) {
  PlanReading reading;
  reading.plan = config::PlanMaker(options, reading.problems).make(text, name);
  return reading;
}

}  // namespace fullshard
