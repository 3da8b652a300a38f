// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace fullshard::config {
namespace {

tiers::Tier tier_of(const std::string& device) {
  if (device == "none") return tiers::Tier::device;
  return device == "nvme" ? tiers::Tier::disk : tiers::Tier::host;
}

tiers::OffloadPlace place_of(const OffloadTarget& target) {
  return {.tier = tier_of(*target.device),
          .folder = target.nvme_path->value_or(""),
          .pin_memory = *target.pin_memory,
          .buffer_count = *target.buffer_count};
}

tiers::Stepping stepping_of(const std::string& step) {
  if (step == "device") return tiers::Stepping::device;
  return step == "host" ? tiers::Stepping::host : tiers::Stepping::automatic;
}

// The origin of that key, and the Plan's own name for it if the Plan was built in code.
std::pair<Origin, std::string_view> place_in(const Plan& plan, std::string_view key) {
  const OffloadPlan& offload = plan.offload;
  if (key == "offload_param.device") {
    return {offload.parameters.device.origin, "offload.parameters.device"};
  }
  if (key == "offload_param.buffer_count") {
    return {offload.parameters.buffer_count.origin, "offload.parameters.buffer_count"};
  }
  if (key == "offload_param.buffer_size") {
    return {offload.parameter_buffer_size.origin, "offload.parameter_buffer_size"};
  }
  if (key == "offload_param.max_in_cpu") return {offload.max_in_cpu.origin, "offload.max_in_cpu"};
  if (key == "offload_optimizer.device") {
    return {offload.optimizer.device.origin, "offload.optimizer.device"};
  }
  if (key == "offload_optimizer.buffer_count") {
    return {offload.optimizer.buffer_count.origin, "offload.optimizer.buffer_count"};
  }
  if (key == "offload_optimizer.ratio") return {offload.ratio.origin, "offload.ratio"};
  if (key == "aio.block_size") return {offload.block_size.origin, "offload.block_size"};
  if (key == "aio.queue_depth") return {offload.queue_depth.origin, "offload.queue_depth"};
  if (key == "aio.intra_op_parallelism") return {offload.threads.origin, "offload.threads"};
  return {offload.everything.origin, "offload.everything"};
}

Problem offload_problem(const Origin& origin, std::string_view field, std::string message,
                        std::string suggestion = "") {
  return {.file = origin.file.empty() ? origin.note : origin.file,
          .line = origin.line,
          .key = origin.key.empty() ? std::string(field) : origin.key,
          .message = std::move(message),
          .suggestion = std::move(suggestion)};
}

}  // namespace

tiers::TierOptions offload_of(const Plan& plan) {
  const OffloadPlan& offload = plan.offload;
  tiers::TierOptions options;
  options.parameters = place_of(offload.parameters);
  options.buffer_size = *offload.parameter_buffer_size;
  options.max_in_cpu = *offload.max_in_cpu;
  options.optimizer = place_of(offload.optimizer);
  // With DeepSpeed's default, what fits on the device may stay there.
  if (offload.ratio.origin.is_explicit() || *offload.ratio != 1) options.ratio = *offload.ratio;
  options.resident_bytes = *offload.resident_bytes;
  // DeepSpeed switches them off by default; here only an explicit false does.
  const auto unless_off = [](const Setting<bool>& setting) {
    return *setting || !setting.origin.is_explicit();
  };
  options.pipeline_read = unless_off(offload.pipeline_read);
  options.pipeline_write = unless_off(offload.pipeline_write);
  options.fast_init = *offload.fast_init;
  options.everything = *offload.everything;
  options.stepping = stepping_of(*offload.step);
  options.host_share = share_of_step(*offload.step);
  options.disk = {.block_size = *offload.block_size,
                  .queue_depth = *offload.queue_depth,
                  .num_threads = *offload.threads,
                  .single_submit = *offload.single_submit,
                  .overlap_events = *offload.overlap_events};
  return options;
}

int offload_stage(const Plan& plan) {
  return static_cast<int>(plan.sharding.stage.value.value_or(3));
}

void check_offload(const Plan& plan, Problems& problems) {
  for (tiers::OffloadProblem& found :
       tiers::offload_problems(offload_of(plan), offload_stage(plan))) {
    const auto [origin, field] = place_in(plan, found.key);
    problems.errors.push_back(
        offload_problem(origin, field, std::move(found.message), std::move(found.suggestion)));
  }
}

void note_offload_on_cpu(const Plan& plan, const std::optional<std::string>& device,
                         Problems& problems) {
  if (device == "cuda") return;
  const auto note = [&](const Origin& origin, std::string_view field) {
    Problem problem = offload_problem(
        origin, field,
        fmt::format("on a CPU device host memory holds everything already: nothing is moved{}",
                    device ? "" : " (on CUDA it is)"));
    // Reported once, even if several of them ask for it.
    const auto is_same = [&](const Problem& other) { return other.message == problem.message; };
    if (std::none_of(problems.warnings.begin(), problems.warnings.end(), is_same)) {
      problems.warnings.push_back(std::move(problem));
    }
  };
  if (*plan.offload.parameters.device == "cpu") {
    note(plan.offload.parameters.device.origin, "offload.parameters.device");
  }
  if (*plan.offload.optimizer.device == "cpu") {
    note(plan.offload.optimizer.device.origin, "offload.optimizer.device");
  }
  if (*plan.offload.everything) note(plan.offload.everything.origin, "offload.everything");
}

std::optional<double> share_of_step(const std::string& value) {
  double share = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, problem] = std::from_chars(value.data(), end, share);
  if (problem != std::errc() || stop != end || !(share >= 0 && share <= 1)) return std::nullopt;
  return share;
}

std::optional<OffloadWords> offload_words(const std::string& value) {
  const size_t colon = value.find(':');
  const std::string what = value.substr(0, colon);
  OffloadWords words{.optimizer = what == "optimizer" || what == "all",
                     .parameters = what == "param" || what == "all",
                     .device = "cpu"};
  if (!words.optimizer && !words.parameters) return std::nullopt;
  if (colon == std::string::npos) return words;
  const std::string place = value.substr(colon + 1);
  if (place.empty()) return std::nullopt;
  if (place == "cpu") return words;
  words.device = "nvme";
  words.folder = place;
  return words;
}

std::string offload_words_problem(const std::string& value) {
  return fmt::format(
      "is '{}', expected optimizer, param or all, optionally followed by :cpu or :FOLDER", value);
}

}  // namespace fullshard::config
